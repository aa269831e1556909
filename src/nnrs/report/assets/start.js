// Everything in its place, top to bottom.

DATA.shown.slice(0, MOST_SHOWN).forEach(show);
if (DATA.contrasts.length) placeContrasts(DATA.contrasts, $("#contrasts"));
if (DATA.others.length) {
  placeContrasts(DATA.others, $("#other-contrasts .table"));
  $("#other-contrasts summary").textContent = `The same on other metrics: ${counted(DATA.others.length, "contrast")}, corrected together`;
} else $("#other-contrasts").hidden = true;
placeResults();
placeChooser();
placePlots();
placeSamples();
placeTrajectory();
placeNeighborExplorer();
placeCurriculumExplorer();
for (const command of document.querySelectorAll(".command")) command.append(copyButton($("code", command).textContent));

const links = make("ul");
for (const section of document.querySelectorAll("main section[data-nav]")) {
  if (section.dataset.nav) links.append(make("li", {}, make("a", { href: `#${section.id}` }, section.dataset.nav)));
}
$("nav").append(links);
const inView = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const link = $(`nav a[href="#${entry.target.id}"]`);
    if (entry.isIntersecting) link?.setAttribute("aria-current", "true");
    else link?.removeAttribute("aria-current");
  }
}, { rootMargin: "-30% 0px -60% 0px" });
document.querySelectorAll("main section").forEach((section) => inView.observe(section));
document.documentElement.dataset.ready = "true";
