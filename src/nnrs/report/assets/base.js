// The data of the page, its one piece of state (which groups the plots show), and small helpers.
// Everything that came from a user's file reaches the page as text, never as markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const { groups, columns, details } = DATA;
const MOST_SHOWN = 8; // as many as there are colors

const $ = (selector, within = document) => within.querySelector(selector);

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else if (value !== undefined && value !== null) element.setAttribute(name === "className" ? "class" : name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

function fixed(value, digits) {
  return value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");
}

function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Selection: group -> color slot. A group keeps its color while it is shown.
const slots = new Map();
const listeners = [];

function show(group) {
  const taken = new Set(slots.values());
  const free = [...Array(MOST_SHOWN).keys()].find((slot) => !taken.has(slot));
  if (free === undefined || !(group in details)) return false;
  slots.set(group, free);
  return true;
}

function toggle(group) {
  const changed = slots.has(group) ? slots.size > 1 && slots.delete(group) : show(group);
  if (changed) listeners.forEach((listener) => listener());
  return changed;
}

const shownGroups = () => [...slots.keys()].sort((a, b) => a - b);
const colorOf = (group) => ink(`--c${slots.get(group)}`);

function download(name, type, text) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function csv(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const quote = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const line = (values) => values.map((value) => quote(String(value ?? ""))).join(",");
  return [line(names), ...rows.map((row) => line(names.map((name) => row[name])))].join("\n") + "\n";
}

function copyButton(text) {
  const button = make("button", { type: "button", className: "small", "aria-label": "Copy" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // a page from a file may not be allowed to
      const field = make("textarea", { value: text });
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

const lineOf = (text) => make("div", { className: "line" }, make("code", {}, text), copyButton(text));

function choice(label, options, onchange) {
  const select = make("select", { onchange: () => onchange(select.value) });
  for (const [value, text] of options) select.append(make("option", { value: String(value) }, text));
  return [make("label", {}, label, " ", select), select];
}

function leaveOut(section) {
  section.hidden = true;
  section.dataset.nav = "";
}
