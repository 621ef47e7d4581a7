// The API, as JSON. A failed call throws a Problem that says what happened in words for the page.

const PREFIX = "api/v1/";
const TOKEN = "headrace-token";
const PATIENCE_MS = 10_000;
let token = remembered();

export class Problem extends Error {
  constructor(status, title) {
    super(title);
    this.status = status;
  }
}

export function address(path, parameters = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

export function headers(more = {}) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

export function useToken(text) {
  token = text;
  try {
    sessionStorage.setItem(TOKEN, text);
  } catch {
    // It then lasts as long as the page.
  }
}

export async function get(path, parameters) {
  let answer;
  try {
    answer = await fetch(address(PREFIX + path, parameters), {
      headers: headers({ Accept: "application/json" }),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch (error) {
    if (error.name === "TimeoutError") throw new Problem(504, "the server did not answer in 10 s");
    throw new Problem(0, "no connection");
  }
  const body = await answer.json().catch(() => null);
  if (!answer.ok) {
    throw new Problem(answer.status, body?.detail || body?.title || `the server answered ${answer.status}`);
  }
  if (body === null) throw new Problem(502, "the answer could not be read");
  return body;
}

function remembered() {
  try {
    return sessionStorage.getItem(TOKEN) ?? "";
  } catch {
    return "";
  }
}
