// Text that the models wrote, side by side, and one sentence as it was trained on.

function written(text) {
  return text.split(" ").flatMap((word) => [/^<(eos|unk|pad)>$/.test(word) ? make("span", { className: "dim" }, word) : word, " "]);
}

function placeSamples() {
  const section = $("#samples"), cards = $(".cards", section), { prompts } = DATA;
  if (!prompts.length) return leaveOut(section);
  let number = 0;
  const card = (group) => {
    const dot = make("span", { className: "dot" });
    dot.style.background = colorOf(group);
    return make("div", { className: "card" }, make("h3", {}, dot, groups[group].name), make("p", {}, ...written(details[group].samples[number])));
  };
  const draw = () => {
    const chosen = shownGroups().filter((group) => details[group].samples[number] !== undefined);
    const gold = make("p", {}, make("strong", {}, ...written(prompts[number].prefix)), " ", ...written(prompts[number].gold));
    cards.replaceChildren(make("div", { className: "card wide" }, make("h3", {}, "The beginning, and how the text really goes on"), gold),
      ...chosen.map(card));
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
  box.append(frame(figure, () => rowsOf.trajectory(narrow() ? 40 : Math.floor(box.clientWidth / 42))));
  const plot = plots.at(-1);
  const offered = able.slice(0, 200);
  const [label, select] = choice("Setting", offered.map((group) => [group, groups[group].name]), (value) => { trajectoryGroup = Number(value); plot.refresh(); });
  select.value = String(trajectoryGroup);
  $(".controls", section).append(label);
}
