// Keeps a page that `kraft regress serve` shows up to date: shows the server's message, and loads the
// page again when the server has a newer one.
"use strict";
(() => {
  const EVERY_MS = 3000;
  const { page, generation } = document.currentScript.dataset;
  const shown = document.getElementById("live");
  const look = async () => {
    try {
      const answer = await fetch("state.json", { cache: "no-store" });
      const state = await answer.json();
      const newest = state.pages[page];
      if (newest !== undefined && newest !== generation) location.reload();
      shown.textContent = state.message;
    } catch {
      shown.textContent = "kraft regress serve does not answer";
    }
  };
  setInterval(look, EVERY_MS);
  look();
})();
