// Text that the models wrote, side by side, and one sentence as it was trained on.

function written(text) {
  return text.split(" ").flatMap((word) => [/^<(eos|unk|pad)>$/.test(word) ? make("span", { className: "dim" }, word) : word, " "]);
}

function placeSamples() {
  const section = $("#samples"), cards = $(".cards", section), { prompts } = DATA;
  if (!prompts.length) return leaveOut(section);
  let number = 0;
  const card = (title, text, color, wide) => {
    const dot = make("span", { className: "dot" });
    if (color) dot.style.background = color;
    return make("div", { className: wide ? "card wide" : "card" }, make("h3", {}, color ? dot : "", title), make("p", {}, ...written(text)));
  };
  const draw = () => {
    const chosen = shownGroups().filter((group) => details[group].samples[number] !== undefined);
    cards.replaceChildren(card("The beginning", `${prompts[number].prefix} …`, null, true), card("How it really goes on", prompts[number].gold, null, false),
      ...chosen.map((group) => card(groups[group].name, details[group].samples[number], colorOf(group), false)));
  };
  const [label] = choice("Beginning", prompts.map(({ prefix }, index) => [index, `${prefix.slice(0, 48)} …`]), (value) => { number = Number(value); draw(); });
  $(".controls", section).append(label);
  draw();
  listeners.push(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

function placeTrajectory() {
  const section = $("#trajectory");
  const able = Object.keys(details).map(Number).filter((group) => details[group].trajectory?.sources.some((source) => source !== "gold"));
  if (!able.length) return leaveOut(section);
  const sources = (group) => new Set(details[group].trajectory.sources).size;
  const preferred = shownGroups().filter((group) => able.includes(group));
  trajectoryGroup = (preferred.length ? preferred : able).reduce((best, group) => (sources(group) > sources(best) ? group : best));
  const box = $(".figures", section), across = DATA.figures.find((figure) => figure.id === "trajectory"), down = DATA.figures.find((figure) => figure.id === "trajectory-down");
  const narrow = () => box.clientWidth < 700;
  const figure = { ...across, title: "Inputs, step by step", get spec() { return (narrow() ? down : across).spec; } };
  box.append(frame(figure, () => rowsOf.trajectory(narrow() ? 40 : Math.floor(box.clientWidth / 32))));
  const plot = plots.at(-1);
  const offered = able.slice(0, 200);
  const [label, select] = choice("Setting", offered.map((group) => [group, groups[group].name]), (value) => { trajectoryGroup = Number(value); plot.refresh(); });
  select.value = String(trajectoryGroup);
  $(".controls", section).append(label);
}
