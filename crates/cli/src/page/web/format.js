// Times, durations and quantities as people read them.

const KEY = "manta-time-zone";

export const zones = { own: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC" };
let zone = localStorage.getItem(KEY) || zones.own;
let formats = {};

export function currentZone() {
  return zone;
}

export function setZone(name) {
  zone = name;
  localStorage.setItem(KEY, name);
  formats = {};
}

function format(name, options, inZone = zone) {
  const key = `${name} ${inZone}`;
  formats[key] ??= new Intl.DateTimeFormat(undefined, { timeZone: inZone, hourCycle: "h23", ...options });
  return formats[key];
}

/** A moment, in full. */
export function moment(time, inZone) {
  if (!time) return "";
  const options = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" };
  return format("moment", options, inZone).format(new Date(time));
}

export function clock(time, inZone) {
  return time ? format("clock", { hour: "2-digit", minute: "2-digit", second: "2-digit" }, inZone).format(new Date(time)) : "";
}

export function shortClock(time, inZone) {
  return time ? format("short", { hour: "2-digit", minute: "2-digit" }, inZone).format(new Date(time)) : "";
}

export function day(time, inZone) {
  return time ? format("day", { weekday: "short", day: "numeric", month: "short" }, inZone).format(new Date(time)) : "";
}

/** How long ago, in at most two units. */
export function age(time, now = Date.now()) {
  return time ? duration(Math.max(0, now - new Date(time))) : "";
}

export function duration(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  if (seconds < 1) return milliseconds > 0 && milliseconds < 1000 ? "<1s" : "0s";
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const parts = [];
  let rest = seconds;
  for (const [name, size] of units) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) parts.push(`${count}${name}`);
    if (parts.length === 2 || (parts.length === 1 && count === 0)) break;
  }
  return parts.slice(0, 2).join(" ");
}

export function bytes(number) {
  if (!number) return "";
  const units = ["B", "Ki", "Mi", "Gi", "Ti", "Pi"];
  let index = 0;
  while (number >= 1024 && index < units.length - 1) {
    number /= 1024;
    index++;
  }
  return `${number >= 10 || Number.isInteger(number) ? Math.round(number) : number.toFixed(1)} ${units[index]}`;
}

export function number(value) {
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}

export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}
