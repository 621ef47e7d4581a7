// Numbers, spans and times as people read them. All times are UTC.

import { serverNow } from "./frame.js";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const NONE = "–";

export function toNumber(value) {
  if (value === null || value === undefined || value === "" || typeof value === "boolean") return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : null;
}

export function count(value) {
  const number = toNumber(value);
  if (number === null) return NONE;
  return Math.abs(number) >= 1e7 ? short.format(number) : whole.format(number);
}

/** A value with its unit, in two parts: the unit is set smaller. */
export function measured(value, unit) {
  const number = toNumber(value);
  if (number === null) return [typeof value === "string" && value ? value : NONE, ""];
  if (unit === "percent") return [percentDigits(number * 100), "%"];
  if (unit === "ms" && Math.abs(number) >= 10_000) return [three.format(number / 1000), "s"];
  return [plain(number), unit];
}

export function withUnit(value, unit) {
  const [number, sign] = measured(value, unit);
  return sign ? `${number} ${sign}` : number;
}

export function plain(number) {
  if (Math.abs(number) >= 1e6) return short.format(number);
  return Number.isInteger(number) || Math.abs(number) >= 1000 ? whole.format(number) : three.format(number);
}

function percentDigits(percent) {
  const digits = Math.abs(percent) >= 100 ? 0 : Math.abs(percent) >= 10 ? 1 : 2;
  return percent.toFixed(digits);
}

export function share(part, all) {
  if (!all) return "";
  const percent = (100 * part) / all;
  if (part > 0 && percent < 0.01) return "<0.01 %";
  return `${percentDigits(percent)} %`;
}

export function bytes(value) {
  const number = toNumber(value);
  if (number === null) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, number)) / 10)));
  return `${three.format(number / 2 ** (10 * step))} ${units[step]}`;
}

/** 0.8 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h */
export function span(seconds) {
  const number = toNumber(seconds);
  if (number === null) return NONE;
  if (number < 0) return `−${span(-number)}`;
  if (number < 0.0005) return "0 s";
  if (number < 1) return `${Math.round(number * 1000)} ms`;
  if (number < 10) return `${Number.isInteger(number) ? number : number.toFixed(1)} s`;
  const rounded = Math.round(number);
  if (rounded < 60) return `${rounded} s`;
  const [big, small, size] =
    rounded < 3600 ? ["min", "s", 60] : rounded < 86_400 ? ["h", "min", 3600] : ["d", "h", 86_400];
  const first = Math.floor(rounded / size);
  const rest = Math.floor((rounded % size) / { s: 1, min: 60, h: 3600 }[small]);
  return rest ? `${first} ${big} ${rest} ${small}` : `${first} ${big}`;
}

export function clockTime(at, withSeconds = true) {
  const ms = typeof at === "number" ? at : Date.parse(at ?? "");
  if (!Number.isFinite(ms)) return NONE;
  return new Date(ms).toISOString().slice(11, withSeconds ? 19 : 16);
}

/** With the day when it is not today. */
export function moment(at, now) {
  const ms = typeof at === "number" ? at : Date.parse(at ?? "");
  if (!Number.isFinite(ms)) return NONE;
  const text = new Date(ms).toISOString();
  const today = new Date(now).toISOString().slice(0, 10) === text.slice(0, 10);
  return today ? text.slice(11, 19) : `${text.slice(0, 10)} ${text.slice(11, 16)}`;
}

export function windowText(start, end, sizeSeconds) {
  if (sizeSeconds >= 86_400) return new Date(start).toISOString().slice(0, 10);
  return `${clockTime(start, sizeSeconds % 60 !== 0)}–${clockTime(end, sizeSeconds % 60 !== 0)}`;
}

/** Whole seconds, for what is said again every second. */
export function age(ms) {
  return `${span(Math.max(0, Math.round(ms / 1000)))} ago`;
}

/** How long ago a time of the server was. */
export function since(at) {
  const ms = Date.parse(at ?? "");
  return Number.isFinite(ms) ? age(serverNow() - ms) : "";
}

/** All digits, where every record counts. */
export function exactly(value) {
  return whole.format(value);
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
