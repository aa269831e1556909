// Text that the models wrote, side by side, and one sentence as it was trained on.

function written(text) {
  return text.split(" ").flatMap((word) => [/^<(eos|unk|pad)>$/.test(word) ? make("span", { className: "dim" }, word) : word, " "]);
}

function placeSamples() {
  const section = $("#samples"), cards = $(".cards", section), { prompts } = DATA;
  if (!prompts.length) return leaveOut(section);
  let chosen = null; // which list of beginnings or sources (texts and lengths have their own), and which of it
  const prompt = () => prompts[chosen.list][chosen.number];
  const card = (group) => {
    const dot = make("span", { className: "dot" });
    dot.style.background = colorOf(group);
    const name = `${prompt().translates ? "Our translation: " : ""}${groups[group].name}`;
    return make("div", { className: "card" }, make("h3", {}, dot, name), make("p", {}, ...written(details[group].samples[chosen.number])));
  };
  const wide = (title, ...text) => make("div", { className: "card wide" }, make("h3", {}, title), make("p", {}, ...text));
  const drawCards = () => {
    const { prefix, gold, translates } = prompt();
    const given = translates
      ? [wide("Source", ...written(prefix)), wide("Gold translation", ...written(gold))]
      : [wide("The beginning, and how the text really goes on", make("strong", {}, ...written(prefix)), " ", ...written(gold))];
    $(".made", section).textContent = translates ? "Translations of the same sentence" : "Continuations of the same words";
    cards.replaceChildren(...given, ...shownGroups().filter((group) => details[group].prompts === chosen.list).map(card));
  };
  const draw = () => {
    const lists = [...new Set(shownGroups().map((group) => details[group].prompts).filter((list) => list !== null))];
    const offered = lists.flatMap((list) => prompts[list].map((_, number) => ({ list, number })));
    if (!offered.length) return cards.replaceChildren();
    chosen = offered.find((one) => chosen && one.list === chosen.list && one.number === chosen.number) ?? offered[0];
    const [label, select] = choice("Sample", offered.map((one, index) => [index, `${prompts[one.list][one.number].prefix.slice(0, 48)} …`]),
      (value) => { chosen = offered[Number(value)]; drawCards(); });
    select.value = String(offered.indexOf(chosen));
    $(".controls", section).replaceChildren(label);
    drawCards();
  };
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
  const plot = plots.at(-1), told = $(".translates", section);
  const tell = () => {
    const { translates } = details[trajectoryGroup].trajectory;
    told.hidden = !translates;
    told.textContent = translates ? `Source: ${translates.join(" ")}` : "";
  };
  const offered = able.slice(0, 200);
  const [label, select] = choice("Setting", offered.map((group) => [group, groups[group].name]), (value) => { trajectoryGroup = Number(value); tell(); plot.refresh(); });
  select.value = String(trajectoryGroup);
  $(".controls", section).append(label);
  tell();
}
