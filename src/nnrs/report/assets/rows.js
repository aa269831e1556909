// The rows behind each plot: plain tables, which are drawn, and downloaded as CSV.

const MOST_OTHERS = 1500; // gray points behind the chosen groups
const column = (key) => columns.find((item) => item.key === key);

function perEpoch(fields) {
  return shownGroups().flatMap((group) => {
    const { epochs } = details[group];
    return epochs.valid.map((_, epoch) => {
      const row = { group: groups[group].name, epoch };
      for (const [name, source] of Object.entries(fields)) row[name] = epochs[source][epoch];
      return row;
    });
  });
}

const RATES = {
  prediction: { prediction: "prediction_rate", prediction_real: "effective_prediction_rate" },
  neighbor: { neighbor: "neighbor_rate", neighbor_real: "effective_neighbor_rate" },
  temperature: { temperature: "temperature" },
  effective: { effective: "effective_neighbors" },
};

const uses = (group, rate) => details[group].epochs[rate].some((value) => value > 0);

// What a group is compared with: teacher forcing on its own text, with its own model and training, if that is chosen.
function baselineOf(group, chosen) {
  return chosen.find((other) => groups[other].setting === groups[group].setting && groups[other].labels.method === "mle");
}

// A difference to the baseline and its name; both are null where there is none.
function toBaseline(baseline, value, other) {
  const difference = value && other ? Math.log(value / other) : null;
  return { difference, baseline: baseline === undefined ? null : groups[baseline].name };
}

// The rows of a plot of differences: none where no group but the baselines themselves has one.
function compared(rows) {
  const known = rows.filter((row) => row.difference !== null);
  return known.some((row) => row.baseline !== row.group) ? known : [];
}

const rowsOf = {
  learning() {
    const test = column("ppl|test");
    const chosen = shownGroups(), numbers = new Map(chosen.map((group) => [groups[group].name, group]));
    return perEpoch({ valid: "valid", low: "low", high: "high" }).map((row) => {
      const group = numbers.get(row.group), baseline = baselineOf(group, chosen);
      return { ...row, test: test.mean[group], ...toBaseline(baseline, row.valid, details[baseline]?.epochs.valid[row.epoch]) };
    });
  },

  rates(name) {
    const rate = name === "prediction" ? "prediction_rate" : "neighbor_rate";
    const users = new Set(shownGroups().filter((group) => uses(group, rate)).map((group) => groups[group].name));
    return perEpoch(RATES[name]).filter((row) => users.has(row.group) && row[name] !== null);
  },

  exposure() {
    return shownGroups().flatMap((group) => {
      const { exposure } = details[group];
      if (!exposure) return [];
      const first = exposure.excess.length - exposure.recovery;
      return exposure.excess.map((excess, index) => ({
        group: groups[group].name, step: index + 1, excess, low: exposure.low[index], high: exposure.high[index],
        returns: exposure.recovery > 0 && index === first - 1,
      }));
    });
  },

  tradeoff() {
    // Of several ways of making both the one that most groups have, on the test split if any is.
    const count = (item) => item.mean.filter((mean) => mean !== null).length + (/^bleu4\|test/.test(item.key) ? groups.length : 0);
    const beside = (item) => column(item.key.replace("bleu4", "self-bleu4"));
    const [bleu] = columns.filter((item) => /^bleu4\|/.test(item.key) && beside(item)).sort((a, b) => count(b) - count(a));
    if (!bleu) return [];
    const self = beside(bleu);
    const chosen = new Set(shownGroups());
    const rows = [];
    const add = (kind, group, seeds, quality, diversity) => {
      if (quality !== null && diversity !== null) rows.push({ kind, group: groups[group].name, seeds, quality, diversity });
    };
    const corpora = new Set([...chosen].map((group) => groups[group].corpus)); // scores of other texts say nothing here
    const others = groups.map((_, group) => group).filter((group) => !chosen.has(group) && corpora.has(groups[group].corpus));
    for (const group of others.slice(0, MOST_OTHERS)) add("other", group, seedsOf(group), bleu.mean[group], self.mean[group]);
    for (const group of chosen) {
      groups[group].seeds.forEach((seed, index) => {
        const run = groups[group].run + index;
        add("run", group, `seed ${seed}`, bleu.runs[run], self.runs[run]);
      });
      add("mean", group, seedsOf(group), bleu.mean[group], self.mean[group]);
    }
    return rows;
  },

  deciles() {
    const chosen = shownGroups().filter((group) => details[group].deciles.some((value) => value !== null));
    return chosen.flatMap((group) => {
      const baseline = baselineOf(group, chosen);
      return details[group].deciles.map((perplexity, index) => {
        const difference = toBaseline(baseline, perplexity, details[baseline]?.deciles[index]);
        return { group: groups[group].name, decile: index + 1, perplexity, ...difference };
      });
    });
  },

  noise(kind) {
    return shownGroups().flatMap((group) =>
      details[group].noise[kind].map(([percent, perplexity]) => ({ group: groups[group].name, percent, perplexity })),
    );
  },

  trajectory(steps) {
    const { trajectory } = details[trajectoryGroup];
    return trajectory.gold.slice(0, steps).flatMap((gold, step) => {
      const source = trajectory.sources[step], word = (lane, others) => (source === lane ? trajectory.inputs[step] : others?.[step]);
      const words = { gold, neighbor: word("neighbor", trajectory.neighbors), prediction: word("prediction", trajectory.predictions) };
      return LANES.filter((lane) => words[lane]).map((lane) => ({ step, lane, word: words[lane], gold, taken: source === lane }));
    });
  },
};

const seedsOf = (group) => `mean of ${counted(groups[group].seeds.length, "seed")}`;
let trajectoryGroup = null; // set where the trajectory is chosen
