// The connection to the server: requests, and one WebSocket for everything that is live.

const KEY = "manta-session";
const PROTOCOL = "manta.v1";

// The secret is in the fragment of the printed address. It is kept for other tabs of this origin and removed from the
// address, so that it is in no bookmark and no screenshot.
const inAddress = /^#key=([0-9a-f]+)$/.exec(location.hash);
if (inAddress) {
  localStorage.setItem(KEY, inAddress[1]);
  history.replaceState(null, "", "#/");
}
let secret = sessionStorage.getItem(KEY) || localStorage.getItem(KEY);

/** Takes the secret that another tab has got since; returns whether there is one. */
function takeNewSecret() {
  const newer = localStorage.getItem(KEY);
  if (!newer || newer === secret || sessionStorage.getItem(KEY)) return false;
  secret = newer;
  return true;
}

/** Keeps the secret of a session for this tab. */
export function setSecret(value) {
  secret = value;
  sessionStorage.setItem(KEY, value);
}

export function forgetSecret() {
  secret = null;
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

/** An answer that is not a success. */
export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Sends a request; `body` makes it a POST, and `signal` ends it early. */
export async function request(path, body, signal) {
  const options = { headers: {}, cache: "no-store", credentials: "omit", signal };
  if (secret) options.headers.Authorization = `Bearer ${secret}`;
  if (body !== undefined) {
    options.method = "POST";
    options.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new RequestError(0, "The server of this page does not answer; is it still running?");
  }
  const value = await response.json().catch(() => ({}));
  if (!response.ok) throw new RequestError(response.status, value.error || `The server answers ${response.status}`);
  return value;
}

function openSocket(path) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  return new WebSocket(`${scheme}://${location.host}${path}`, [PROTOCOL, `session.${secret}`]);
}

/** Opens a socket for a terminal. */
export function openTerminal() {
  const socket = openSocket("/api/exec");
  socket.binaryType = "arraybuffer";
  return socket;
}

let socket = null;
let nextId = 1;
let delay = 0;
const subscriptions = new Map();
const listeners = new Set();
let state = "connecting";

/** The server says something every 15 s. When nothing has come for so long, the connection is dead, though nobody has closed it. */
const SILENCE = 45 * 1000;
let heardAt = 0;

/** Calls `listener` with `connecting`, `live`, `lost` or `ended` (the session, so that nothing is tried again) whenever the connection changes. */
export function onConnection(listener) {
  listeners.add(listener);
  listener(state);
}

function setState(next) {
  if (state === next) return;
  state = next;
  for (const listener of listeners) listener(state);
}

/** Connects, unless that is so already; everything that is watched is asked for again. */
export function connect() {
  if (socket || !secret) return;
  if (state === "ended") setState("connecting");
  socket = openSocket("/api/live");
  let wasOpen = false;
  heardAt = Date.now();
  socket.onopen = () => {
    wasOpen = true;
    delay = 0;
    heardAt = Date.now();
    setState("live");
    for (const [id, { open }] of subscriptions) socket.send(JSON.stringify({ id, open }));
  };
  socket.onmessage = (event) => {
    heardAt = Date.now();
    const message = JSON.parse(event.data);
    subscriptions.get(message.id)?.receive(message);
  };
  socket.onclose = () => closed(wasOpen);
}

/** Notes that the connection is over, and connects again after a while, unless the session is over, too. */
async function closed(wasOpen) {
  setState("lost");
  for (const { lost } of subscriptions.values()) lost?.();
  // A browser does not say why a socket did not open, so the question is asked in another way.
  const hasEnded = !wasOpen && (await request("/api/session", undefined, AbortSignal.timeout(SILENCE)).then(() => false, (error) => error.status === 401));
  socket = null;
  if (hasEnded && !takeNewSecret()) return setState("ended");
  delay = Math.min(5000, delay ? delay * 2 : 250);
  setTimeout(connect, delay);
}

/** Gives a connection up that has been silent for too long. Closing it takes as long as the other side likes, so nothing waits for that. */
export function giveUpSilent(now) {
  if (!socket?.onclose || now - heardAt < SILENCE) return;
  const silent = socket;
  const wasOpen = silent.readyState === WebSocket.OPEN;
  silent.onopen = silent.onmessage = silent.onclose = null;
  silent.close();
  closed(wasOpen);
}

setInterval(() => giveUpSilent(Date.now()), 5000);

/** A session lasts as long as its viewer is there, and looking on sends no request. */
const SIGN_OF_LIFE = 5 * 60 * 1000;
let seenAt = Date.now();

function isThere() {
  if (Date.now() - seenAt < SIGN_OF_LIFE || socket?.readyState !== WebSocket.OPEN) return;
  seenAt = Date.now();
  // Ends a subscription that there is not.
  socket.send(JSON.stringify({ id: 0 }));
}

for (const event of ["keydown", "pointermove", "pointerdown", "wheel"]) addEventListener(event, isThere, { passive: true });

/**
 * Watches something; `receive` gets every message, `lost` is called when the connection breaks, after which everything is
 * sent anew. Returns a function that ends it.
 */
export function watch(open, receive, lost) {
  const id = nextId++;
  subscriptions.set(id, { open, receive, lost });
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ id, open }));
  else connect();
  return () => {
    if (subscriptions.delete(id) && socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ id }));
  };
}
