// Every two seconds the page is asked for anew and its living part put in place; nobody looks at a hidden page.
(() => {
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const follow = async () => {
    for (;;) {
      await wait(2000);
      if (document.hidden) continue;
      try {
        const answer = await fetch(location.href);
        if (!answer.ok) continue;
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const now = page.getElementById("live"), shown = document.getElementById("live");
        if (now && now.innerHTML !== shown.innerHTML) shown.replaceWith(now);
      } catch { /* covey ui has ended: what is seen is the last it said */ }
    }
  };
  follow();
})();
