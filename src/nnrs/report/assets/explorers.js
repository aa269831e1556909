// The two explorers: Ñ = softmax(N / τ) of any word (Eq. 3), and the choice of inputs (Eq. 6) at any epoch.

const probabilities = (similarities, temperature) => {
  const highest = Math.max(...similarities);
  const weights = similarities.map((value) => Math.exp((value - highest) / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
};

function pick(shares, draw) {
  let end = 0;
  const ends = shares.map((share) => (end += share));
  return ends.findIndex((value) => value > draw * end);
}

// One word of a sentence at these rates: the source it is taken from, and the word.
function settled(sentence, place, { prediction, neighbor, temperature }) {
  const row = sentence.rows[place];
  const wantsPrediction = sentence.prediction_draws[place] < prediction;
  const wantsNeighbor = row !== null && sentence.neighbor_draws[place] < neighbor;
  if (wantsNeighbor && (!wantsPrediction || sentence.coins[place] < 0.5)) {
    const { neighbors, similarities, words } = DATA.explorer;
    return ["neighbor", words[neighbors[row][pick(probabilities(similarities[row], temperature), sentence.picks[place])]]];
  }
  return wantsPrediction ? ["prediction", sentence.predictions[place]] : ["gold", sentence.words[place]];
}

function placeNeighborExplorer() {
  const section = $("#explore-neighbors"), { explorer } = DATA;
  if (!explorer) return leaveOut(section);
  const { words, neighbors, similarities, counts, column } = explorer;
  const rows = new Map(neighbors.map((_, row) => [words[row], row]));
  const input = make("input", { type: "text", id: "word", list: "known-words", autocomplete: "off", spellcheck: false });
  const known = make("datalist", { id: "known-words" }, ...[...rows.keys()].map((word) => make("option", { value: word })));
  const slider = make("input", { type: "range", id: "tau", min: "-1.301", max: "1", step: "0.001", value: String(Math.log10(0.5)) });
  const shown = make("output", { for: "tau", id: "tau-shown" }), note = make("p", { className: "note", "aria-live": "polite" }), list = make("ul", { className: "bars" });

  function draw() {
    const temperature = 10 ** Number(slider.value), word = input.value.trim();
    shown.textContent = temperature.toFixed(3);
    slider.setAttribute("aria-valuetext", temperature.toFixed(3));
    const row = rows.get(word) ?? rows.get(word.toLowerCase());
    if (row === undefined) {
      const close = [...rows.keys()].filter((other) => other.startsWith(word.toLowerCase())).slice(0, 6);
      const instead = close.length && word ? ` Some that begin so: ${close.join(", ")}.` : "";
      note.textContent = word ? `“${word}” has no neighbors here: it is never replaced, or too rare to be kept.${instead}` : "Type a word.";
      list.replaceChildren();
      return;
    }
    const shares = probabilities(similarities[row], temperature), highest = Math.max(...shares);
    const count = Math.exp(-shares.reduce((sum, share) => sum + (share > 0 ? share * Math.log(share) : 0), 0));
    note.textContent = `“${words[row]}”, ${counted(counts[row], "time")} in the training text: ${counted(shares.length, "neighbor")}, sharing the draw like ${count.toFixed(2)} equally likely ones.`;
    const titles = make("li", { className: "titles" }, make("span", {}, "neighbor"), make("span", { className: "near" }, column), make("span", {}), make("span", { className: "share" }, "probability"));
    list.replaceChildren(titles, ...shares.map((share, slot) => {
      const name = words[neighbors[row][slot]], fill = make("div", { className: "fill" });
      fill.style.width = `${(100 * share) / highest}%`;
      const hop = make("button", { type: "button", onclick: () => { input.value = name; draw(); input.focus(); } }, name);
      return make("li", {}, hop, make("span", { className: "near" }, fixed(similarities[row][slot], 3)),
        make("div", { className: "track" }, fill), make("span", { className: "share" }, share.toFixed(4)));
    }));
  }

  const start = DATA.explorer.neighbors.findIndex((_, row) => /^[a-z]{6,}$/.test(words[row]));
  input.value = words[Math.max(start, 0)];
  input.addEventListener("input", draw);
  slider.addEventListener("input", draw);
  $(".explorer", section).append(make("div", { className: "panel" },
    make("div", {}, make("div", { className: "field" }, make("label", { for: "word" }, "Word"), input, known),
      make("div", { className: "field" }, make("label", { for: "tau" }, "Temperature τ = ", shown), slider), note), list));
  draw();
}

function placeCurriculumExplorer() {
  const section = $("#explore-curriculum"), box = $(".explorer", section);
  const { explorer } = DATA;
  if (!explorer) return leaveOut(section);
  // Neighbors are those of one run: settings that draw from other tables, or read another text, would show wrong words.
  const able = DATA.explorable.filter((group) => ["prediction_rate", "neighbor_rate"].some((name) => details[group].epochs[name].some((rate) => rate > 0)));
  if (!explorer.sentences.length || !able.length) return leaveOut(section);
  const preferred = able.filter((group) => slots.has(group)), both = (group) => details[group].epochs.prediction_rate.at(-1) > 0 && details[group].epochs.neighbor_rate.at(-1) > 0;
  const state = { group: preferred.find(both) ?? able.find(both) ?? able[0], sentence: DATA.explorer.sentences[0] };
  const slider = make("input", { type: "range", id: "epoch", min: "0", step: "1", value: "0" }), shown = make("output", { for: "epoch", id: "epoch-shown" });
  const readout = make("div", { className: "readout", "aria-live": "polite" }), words = make("div", { className: "sentence" });

  function draw() {
    const { epochs } = details[state.group];
    slider.max = String(epochs.valid.length - 1);
    const epoch = Number(slider.value);
    const rates = { prediction: epochs.prediction_rate[epoch] ?? 0, neighbor: epochs.neighbor_rate[epoch] ?? 0, temperature: epochs.temperature[epoch] };
    const taken = state.sentence.words.map((_, place) => settled(state.sentence, place, rates));
    shown.textContent = `${epoch} of ${slider.max}`;
    const fact = (name, value) => make("span", {}, `${name} `, make("b", {}, value));
    const replaced = taken.filter(([source]) => source !== "gold").length;
    readout.replaceChildren(fact("ε", rates.prediction.toFixed(3)), fact("γ", rates.neighbor.toFixed(3)), fact("τ", rates.temperature.toFixed(3)), fact("replaced", `${replaced} of ${taken.length}`));
    words.replaceChildren(...taken.map(([source, word], place) =>
      make("span", { className: `word ${source === "gold" ? "" : source}`, "data-source": source }, make("span", {}, word), source === "gold" ? null : make("small", {}, state.sentence.words[place]))));
  }

  const [sentences] = choice("Sentence", DATA.explorer.sentences.map((sentence, index) => [index, `${sentence.words.slice(0, 7).join(" ").slice(0, 44)} …`]), (value) => { state.sentence = DATA.explorer.sentences[Number(value)]; draw(); });
  const [settings, select] = choice("Setting", able.slice(0, 200).map((group) => [group, groups[group].name]), (value) => { state.group = Number(value); draw(); });
  select.value = String(state.group);
  let playing = null;
  const play = make("button", { type: "button", className: "small" }, "Play");
  play.addEventListener("click", () => {
    if (playing) { clearInterval(playing); playing = null; play.textContent = "Play"; return; }
    if (slider.value === slider.max) slider.value = "0";
    play.textContent = "Pause";
    playing = setInterval(() => {
      slider.value = String(Number(slider.value) + 1);
      draw();
      if (slider.value === slider.max) { clearInterval(playing); playing = null; play.textContent = "Play"; }
    }, 450);
    draw();
  });
  slider.addEventListener("input", draw);
  box.append(make("div", { className: "controls" }, sentences, settings), make("div", { className: "field" },
    make("div", { className: "controls" }, make("label", { for: "epoch" }, "Epoch ", shown), play), slider), readout, words,
    make("p", { className: "note" }, make("span", { className: "neighbor" }, "neighbor"), " of the true word, ", make("span", { className: "prediction" }, "prediction"), ` of the model, both from a finished run of ${explorer.method} on ${explorer.corpus}; the true word struck out below.`));
  slider.max = String(details[state.group].epochs.valid.length - 1);
  slider.value = slider.max;
  draw();
}
