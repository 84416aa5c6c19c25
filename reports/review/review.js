"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("pairs").textContent);
  const place = "recast-review-" + data.page;
  let votes = [];
  let at = 0;
  let since = performance.now();

  const restore = () => {
    try {
      const kept = JSON.parse(localStorage.getItem(place) || "null");
      if (kept && Array.isArray(kept.votes)) {
        const known = new Set(data.pairs.map((pair) => pair.id));
        votes = kept.votes.filter((vote) => known.has(vote.pair));
        at = Math.min(Math.max(kept.at | 0, 0), data.pairs.length);
        byId("voter").value = String(kept.voter || "");
      }
    } catch (problem) { /* a browser may forbid storage to files: votes live in the page then */ }
  };

  const keep = () => {
    try {
      localStorage.setItem(place, JSON.stringify({ votes, at, voter: byId("voter").value }));
    } catch (problem) { /* as above */ }
  };

  const ballot = () => JSON.stringify({
    schema_version: 1,
    page: data.page,
    voter: byId("voter").value.trim() || "anonymous",
    votes,
  }, null, 1);

  const show = () => {
    const over = at >= data.pairs.length;
    byId("vote").hidden = over;
    byId("done").hidden = !over;
    byId("count").textContent = String(votes.length);
    byId("text").value = ballot();
    if (over) {
      byId("done-title").focus();
      return;
    }
    const pair = data.pairs[at];
    byId("progress").textContent = `Pair ${at + 1} of ${data.pairs.length}`;
    byId("prompt").textContent = pair.prompt;
    for (const side of ["left", "right"]) {
      const image = byId(side + "-image");
      image.src = pair[side];
      image.onload = () => image.classList.toggle("small", image.naturalWidth <= 128);
    }
    since = performance.now();
  };

  const choose = (choice) => {
    if (at >= data.pairs.length) { return; }
    const pair = data.pairs[at].id;
    const seconds = Math.round((performance.now() - since) / 100) / 10;
    votes = votes.filter((vote) => vote.pair !== pair);
    votes.push({ pair, choice, seconds });
    step(1);
  };

  const step = (by) => {
    at = Math.min(Math.max(at + by, 0), data.pairs.length);
    keep();
    show();
  };

  const back = () => {
    if (at === 0) { return; }
    const pair = data.pairs[at - 1].id;
    votes = votes.filter((vote) => vote.pair !== pair);
    step(-1);
  };

  const save = () => {
    const link = document.createElement("a");
    const address = URL.createObjectURL(new Blob([ballot()], { type: "application/json" }));
    link.href = address;
    link.download = `votes-${data.page}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };

  const keys = {
    ArrowLeft: () => choose("left"), ArrowRight: () => choose("right"),
    ArrowDown: () => choose("tie"), u: back, s: () => step(1), e: save,
  };

  byId("left").addEventListener("click", () => choose("left"));
  byId("right").addEventListener("click", () => choose("right"));
  byId("tie").addEventListener("click", () => choose("tie"));
  byId("undo").addEventListener("click", back);
  byId("skip").addEventListener("click", () => step(1));
  byId("save").addEventListener("click", save);
  byId("who").addEventListener("submit", (event) => event.preventDefault());
  byId("voter").addEventListener("input", () => { keep(); byId("text").value = ballot(); });
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, textarea") || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (act && !event.repeat) {
      event.preventDefault();
      act();
    }
  });

  restore();
  show();
})();
