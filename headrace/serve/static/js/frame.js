// Drawing is batched: however many changes arrive, each part is drawn at most once per animation frame.

const waiting = new Set();
let asked = false;

export function redraw(part) {
  waiting.add(part);
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    const parts = [...waiting];
    waiting.clear();
    for (const one of parts) one.draw();
  });
}

// One clock for the page, set by the server's: a wrong clock on a laptop must not make numbers look old.
let offset = 0;

export function setServerTime(at) {
  const server = Date.parse(at ?? "");
  if (Number.isFinite(server)) offset = server - Date.now();
}

export function serverNow() {
  return Date.now() + offset;
}

export function everySecond(work) {
  setInterval(() => {
    if (!document.hidden) work();
  }, 1000);
}

/** What is called often is done at once, then once in so many seconds; the last call is never lost. */
export function spaced(seconds, work) {
  let next = 0;
  let timer = 0;
  const run = () => {
    // A timer may go off a moment before its time.
    const left = next - performance.now();
    timer = left > 0 ? setTimeout(run, Math.ceil(left)) : 0;
    if (timer) return;
    work();
    next = performance.now() + seconds * 1000;
  };
  return () => {
    if (!timer) timer = setTimeout(run, Math.max(0, next - performance.now()));
  };
}

/** Repeat while the page is visible; one run at a time. */
export function poll(seconds, work) {
  let busy = false;
  const run = async () => {
    if (busy || document.hidden) return;
    busy = true;
    try {
      await work();
    } finally {
      busy = false;
    }
  };
  run();
  setInterval(run, seconds * 1000);
  document.addEventListener("visibilitychange", run);
  return run;
}
