// The table of results, by group or by run, and what stands behind each number; the table of contrasts.

const SETS = [...new Set(columns.map((item) => item.shelf).filter((shelf) => shelf !== null))];
const onShelf = (shelf) => columns.filter((item) => item.shelf === shelf || item.shelf === null); // doses stand beside every row
const runs = groups.flatMap((group, index) => {
  group.run = 0;
  return group.seeds.map((seed) => ({ group: index, seed }));
});
groups.reduce((run, group) => { group.run = run; return run + group.seeds.length; }, 0);

function signature(item, group, seeds) {
  const head = Array.isArray(item.head) ? item.head[group] : item.head;
  return head === null ? null : DATA.heads[head].replace("{run}", DATA.tails[groups[group].tail].replace("{seed}", seeds.join(",")));
}

// The best mean of a column among the groups of one text.
function bests(item) {
  const found = new Map();
  if (!item.better) return found;
  item.mean.forEach((mean, group) => {
    const { corpus } = groups[group], best = found.get(corpus);
    if (mean !== null && (best === undefined || (item.better === "lower" ? mean < item.mean[best] : mean > item.mean[best]))) found.set(corpus, group);
  });
  return found;
}

const short = (item) => item.label.replace("perplexity ", "");

function groupColumns(shelf) {
  const name = { label: "setting", value: (row) => groups[row].name, cell: plotBox };
  const seeds = { label: "seeds", value: (row) => groups[row].seeds.length, cell: (row) => make("td", {}, String(groups[row].seeds.length)) };
  const scored = onShelf(shelf).flatMap((item) => {
    const best = bests(item), several = groups.length > 1;
    const own = { label: item.label, about: item.about, better: item.better, value: (row) => item.mean[row],
      cell: (row) => make("td", { className: several && best.get(groups[row].corpus) === row ? "best" : "" },
        make("b", {}, fixed(item.mean[row], item.digits)),
        item.low[row] === null ? null : make("small", {}, `${fixed(item.low[row], item.digits)} to ${fixed(item.high[row], item.digits)}`)) };
    const paper = DATA.paper[item.key];
    if (!paper) return [own];
    const difference = (row) => (paper[row] === null || item.mean[row] === null ? null : item.mean[row] - paper[row]);
    const printed = { label: `paper ${short(item)}`, about: "as printed in the paper", value: (row) => paper[row], cell: (row) => numeric(paper[row], item.digits) };
    if (/wmd/.test(item.key)) return [own, printed]; // on a scale that the paper does not name
    return [own, printed,
      { label: `ours − paper ${short(item)}`, about: "difference", value: difference, cell: (row) => numeric(difference(row), item.digits) }];
  });
  return [name, seeds, ...scored];
}

function runColumns(shelf) {
  const name = { label: "run", value: (row) => groups[runs[row].group].name, cell: () => "" };
  const seed = { label: "seed", value: (row) => runs[row].seed, cell: (row) => make("td", {}, String(runs[row].seed)) };
  const epoch = { label: "best epoch", value: (row) => DATA.bests[row], cell: (row) => make("td", {}, String(DATA.bests[row])) };
  const scored = onShelf(shelf).map((item) => ({
    label: item.label, about: item.about, better: item.better, value: (row) => item.runs[row], cell: (row) => numeric(item.runs[row], item.digits),
  }));
  return [name, seed, ...(shelf === "perplexity" ? [epoch] : []), ...scored];
}

function plotBox(group) {
  const box = make("input", { type: "checkbox", checked: slots.has(group), disabled: !(group in details),
    "aria-label": `Show ${groups[group].name} in the plots`, title: group in details ? "Show in the plots" : "Not among the groups kept in detail" });
  box.addEventListener("change", () => { toggle(group); box.checked = slots.has(group); });
  return box;
}

function behind(group, seeds, shelf) {
  const list = make("dl");
  for (const item of onShelf(shelf)) {
    const signed = signature(item, group, seeds);
    if (!signed || item.mean[group] === null) continue;
    const values = groups[group].seeds.map((seed, index) => [seed, item.runs[groups[group].run + index]]).filter(([seed, value]) => value !== null && seeds.includes(seed));
    const sd = seeds.length > 1 && item.sd[group] !== null ? ` · sd ${fixed(item.sd[group], item.digits + 1)}` : "";
    list.append(make("div", {}, make("dt", {}, item.label),
      make("dd", { className: "seeds" }, values.map(([seed, value]) => `seed ${seed}: ${fixed(value, item.digits + 1)}`).join(" · ") + sd),
      make("dd", {}, lineOf(signed))));
  }
  const { command, evaluate } = groups[group];
  const ofOne = () => command.replace(/--seeds \S+/, `--seed ${seeds[0]}`).replace(/--out \S+/, `$&_seed-${seeds[0]}`);
  const trained = seeds.length === groups[group].seeds.length ? command : ofOne();
  list.append(make("div", {}, make("dt", {}, "Trained by"), make("dd", {}, lineOf(trained))));
  if (evaluate) list.append(make("div", {}, make("dt", {}, "Scored by"), make("dd", {}, lineOf(evaluate))));
  return list;
}

function placeResults() {
  const place = $("#table"), state = { shelf: SETS[0], byRun: false };
  const everyGroup = groups.map((_, index) => index), everyRun = runs.map((_, index) => index);
  const bar = make("div", { className: "bar" });
  place.append(bar);
  const table = new Table(place, {
    label: "Results", columns: groupColumns(state.shelf), rows: everyGroup,
    name: (row) => (state.byRun ? groups[runs[row].group].name : groups[row].name),
    detail: (row) => (state.byRun ? behind(runs[row].group, [runs[row].seed], state.shelf) : behind(row, groups[row].seeds, state.shelf)),
  });
  const draw = () => {
    table.use(state.byRun ? runColumns(state.shelf) : groupColumns(state.shelf), state.byRun ? everyRun : everyGroup);
    for (const button of bar.querySelectorAll("[data-state]")) button.setAttribute("aria-pressed", String(button.dataset.state === state.shelf || button.dataset.state === `by ${state.byRun ? "run" : "setting"}`));
  };
  const tab = (text, act) => make("button", { type: "button", "data-state": text, "aria-pressed": "false", onclick: () => { act(); draw(); } }, text);
  bar.append(make("div", { className: "tabs", role: "group", "aria-label": "Metrics" }, ...SETS.map((shelf) => tab(shelf, () => (state.shelf = shelf)))));
  if (runs.length > groups.length) {
    bar.append(make("div", { className: "tabs", role: "group", "aria-label": "Rows" },
      tab("by setting", () => (state.byRun = false)), tab("by run", () => (state.byRun = true))));
  }
  const search = make("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the rows", className: "push" });
  search.addEventListener("input", () => { table.filter = search.value; table.page = 0; table.draw(); });
  bar.append(search, make("button", { type: "button", className: "small", onclick: () => download("results.csv", "text/csv", csv(flat())) }, "CSV"));
  draw();
  listeners.push(() => { if (!state.byRun) table.draw(); });
}

// Every run with every column, for a spreadsheet.
function flat() {
  return runs.map(({ group, seed }, row) => ({
    ...groups[group].labels, seed, best_epoch: DATA.bests[row],
    ...Object.fromEntries(columns.map((item) => [item.key, item.runs[row]])),
    signature: signature(columns[1] ?? columns[0], group, [seed]),
  }));
}

function placeContrasts(contrasts, place) {
  const text = (label, of) => ({ label, words: true, value: (row) => of(contrasts[row]), cell: (row) => make("td", { className: "words" }, of(contrasts[row])) });
  const amount = (item, value) => (item.percent === null ? fixed(value, 3) : `${fixed(100 * Math.expm1(value), 2)} %`);
  const p = (value) => (value < 0.001 ? value.toExponential(0) : value.toFixed(3));
  new Table(place, {
    label: "Contrasts", rows: contrasts.map((_, index) => index), name: (row) => `${contrasts[row].ours} against ${contrasts[row].theirs}`,
    columns: [
      { label: "contrast", value: (row) => `${contrasts[row].ours} against ${contrasts[row].theirs}`, cell: (row) => `${contrasts[row].ours} against ${contrasts[row].theirs}` },
      text("metric", (item) => item.metric.replaceAll("|", " ")),
      { label: "difference", about: "ours minus theirs, paired by seed", value: (row) => contrasts[row].mean,
        cell: (row) => make("td", {}, make("b", {}, amount(contrasts[row], contrasts[row].mean)),
          contrasts[row].low === null ? null : make("small", {}, `${amount(contrasts[row], contrasts[row].low)} to ${amount(contrasts[row], contrasts[row].high)}`)) },
      { label: "seeds", value: (row) => contrasts[row].seeds, cell: (row) => make("td", {}, String(contrasts[row].seeds)) },
      { label: "p", about: "exact sign-flip test", value: (row) => contrasts[row].p, cell: (row) => make("td", {}, p(contrasts[row].p)) },
      { label: "p, Holm", about: "corrected for all contrasts", value: (row) => contrasts[row].holm, cell: (row) => make("td", {}, p(contrasts[row].holm)) },
      text("verdict", (item) => item.verdict),
    ],
  });
}

function placeChooser() {
  const place = $("#chooser"), all = Object.keys(details).map(Number);
  const few = all.length <= 12;
  const draw = () => {
    const offered = few ? all : shownGroups();
    place.replaceChildren(make("span", {}, "Plots show"), ...offered.map((group) => {
      const dot = make("span", { className: "dot" });
      if (slots.has(group)) dot.style.background = colorOf(group);
      const full = !slots.has(group) && slots.size >= MOST_SHOWN;
      return make("button", { type: "button", "aria-pressed": String(slots.has(group)), disabled: full, "data-group": String(group),
        onclick: () => { toggle(group); $(`[data-group="${group}"]`, place)?.focus(); } }, dot, groups[group].name);
    }));
    if (few) return;
    const rest = all.filter((group) => !slots.has(group));
    const [label, select] = choice("", [["", "add …"], ...rest.map((group) => [group, groups[group].name])], (value) => value && toggle(Number(value)));
    select.setAttribute("aria-label", "Add a group to the plots");
    place.append(label);
  };
  draw();
  listeners.push(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
