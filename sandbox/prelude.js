// What a script finds around it, and the bridge to the process that runs it. Evaluated once per interpreter, before
// any script; its value is the bridge. Everything the bridge needs later is captured here, because a script may
// replace any built-in. A script that does can spoil its own evaluation, never reach the host: only text crosses.
// That text is always fresh from `stringify`: the binding cannot convert a string put together from long parts.
(emit, limits) => {
  "use strict";
  const global = globalThis, { apply, construct, ownKeys, defineProperty } = Reflect;
  const { stringify, parse } = JSON, { isArray } = Array, { isView } = ArrayBuffer;
  const { freeze, getOwnPropertyDescriptor, create } = Object, { floor, imul } = Math;
  const evaluate = global.eval, P = Promise, E = Error, TE = TypeError, RE = RangeError, S = String, B = Boolean, M = Map;
  const RX = RegExp, regexTest = RX.prototype.test, U8 = Uint8Array;
  const method = (f) => (self, a, b) => apply(f, self, [a, b]);
  const getter = (proto, name) => method(getOwnPropertyDescriptor(proto, name).get);
  const get = method(M.prototype.get), set = method(M.prototype.set), has = method(M.prototype.has);
  const clear = method(M.prototype.clear), remove = method(M.prototype.delete);
  const eachOfMap = method(M.prototype.forEach), eachOfSet = method(Set.prototype.forEach);
  const slice = method(S.prototype.slice), isProto = method(Object.prototype.isPrototypeOf);
  const hasOwn = (object, key) => getOwnPropertyDescriptor(object, key) !== undefined;
  const lengthOf = getter(Object.getPrototypeOf(U8.prototype), "length"), bytesOf = getter(ArrayBuffer.prototype, "byteLength");
  const bufferOf = getter(DataView.prototype, "buffer"), startOf = getter(DataView.prototype, "byteOffset"), spanOf = getter(DataView.prototype, "byteLength");
  const mapProto = M.prototype, setProto = Set.prototype, bufferProto = ArrayBuffer.prototype, viewProto = DataView.prototype;
  const errorProto = E.prototype, regexProto = RX.prototype;
  const data = (value) => ({ __proto__: null, value, writable: true, enumerable: false, configurable: true });

  // --- time and chance: from the journal's header and the times of the answers, so that a replay is exact ---------
  let now = 0, reads = 0, a = 0, b = 0, c = 0, d = 0;
  const clock = () => now + floor(reads++ / 1000); // a loop that waits for time to pass does end
  const advance = (at) => { const seen = now + floor(reads / 1000); now = at > seen ? at : seen; reads = 0; };
  const random32 = () => { // sfc32
    const t = (a + b | 0) + d | 0;
    d = d + 1 | 0; a = b ^ b >>> 9; b = c + (c << 3) | 0; c = c << 21 | c >>> 11; c = c + t | 0;
    return t >>> 0;
  };
  const seedWith = (words) => { a = words[0] | 0; b = words[1] | 0; c = words[2] | 0; d = words[3] | 0; for (let i = 0; i < 12; i++) random32(); };
  const RealDate = Date, dateProto = RealDate.prototype, dateText = dateProto.toString;
  const Dated = function Date(...parts) {
    if (!new.target) return apply(dateText, construct(RealDate, [clock()]), []);
    return construct(RealDate, parts.length ? parts : [clock()], new.target === Dated ? RealDate : new.target);
  };
  defineProperty(Dated, "prototype", { __proto__: null, value: dateProto, writable: false });
  defineProperty(Dated, "length", { __proto__: null, value: 7, configurable: true });
  for (const [name, f] of [["now", { now() { return clock(); } }.now], ["parse", RealDate.parse], ["UTC", RealDate.UTC]]) {
    defineProperty(Dated, name, data(f));
  }
  defineProperty(RealDate, "now", data(Dated.now));
  defineProperty(dateProto, "constructor", data(Dated));
  defineProperty(global, "Date", data(Dated));
  defineProperty(Math, "random", data({ random() { return (random32() * 0x200000 + (random32() >>> 11)) / 0x20000000000000; } }.random));
  for (const name of ["performance", "SharedArrayBuffer", "Atomics", "WeakRef", "FinalizationRegistry"]) delete global[name];

  // --- values at the edge: one rule, docs/decisions/0031 ----------------------------------------------------------
  const list = (length, at) => { const out = []; for (let i = 0; i < length; i++) defineProperty(out, i, { __proto__: null, value: at(i), writable: true, enumerable: true, configurable: true }); return out; };
  const portable = (value) => {
    if (typeof value === "bigint") return S(value);
    if (typeof value !== "object" || value === null || isArray(value)) return value;
    if (isProto(mapProto, value)) { const flat = []; eachOfMap(value, (v, k) => { flat[flat.length] = k; flat[flat.length] = v; }); return list(flat.length / 2, (i) => [flat[2 * i], flat[2 * i + 1]]); }
    if (isProto(setProto, value)) { const flat = []; eachOfSet(value, (v) => { flat[flat.length] = v; }); return flat; }
    if (isView(value)) { const view = isProto(viewProto, value) ? new U8(bufferOf(value), startOf(value), spanOf(value)) : value; return list(lengthOf(view), (i) => view[i]); }
    if (isProto(bufferProto, value)) { const view = new U8(value); return list(bytesOf(value), (i) => view[i]); }
    if (isProto(errorProto, value)) return { name: S(value.name), message: S(value.message) };
    if (isProto(regexProto, value)) return S(value);
    return value;
  };
  const encode = (value) => {
    const text = stringify(value, (key, item) => portable(item));
    if (text !== undefined && text.length > limits.value) throw new RE(`a value of ${text.length} characters is too large to leave the sandbox (at most ${limits.value})`);
    return text;
  };
  const encodeCyclic = (value) => { // for reading only: a cycle is shown, not refused
    const path = [];
    return stringify(value, function (key, item) {
      while (path.length && path[path.length - 1] !== this) path.length--;
      const flat = portable(item);
      if (typeof flat === "function") return `[Function ${S(flat.name) || "(anonymous)"}]`;
      if (typeof flat !== "object" || flat === null) return flat;
      for (let i = 0; i < path.length; i++) if (path[i] === flat) return "[Circular]";
      path[path.length] = flat;
      return flat;
    });
  };
  const show = (value) => {
    try {
      if (typeof value === "string") return value;
      if (typeof value === "function") return `[Function ${S(value.name) || "(anonymous)"}]`;
      if (typeof value !== "object" || value === null) return typeof value === "bigint" ? `${value}n` : S(value);
      if (isProto(errorProto, value)) return value.message ? `${value.name}: ${value.message}` : S(value.name);
      const text = encodeCyclic(value);
      return text === undefined ? "undefined" : text;
    } catch { return "[a value that cannot be shown]"; }
  };
  const clip = (text, length) => text.length > length ? slice(text, 0, length) : text;
  const describe = (e) => {
    let name = "Error", message = "", stack = "";
    try {
      if (typeof e === "object" && e !== null) {
        const own = e.name, said = e.message, trace = e.stack;
        if (said === undefined && own === undefined) message = show(e);
        else { name = own === undefined ? "Error" : S(own); message = said === undefined ? "" : S(said); }
        if (typeof trace === "string") stack = trace;
      } else message = `the script threw ${show(e)}`;
    } catch { message = "the script threw a value that cannot be read"; }
    return { __proto__: null, name: clip(name, 200), message: clip(message, limits.message), stack: clip(stack, limits.message) };
  };

  // --- tools ----------------------------------------------------------------------------------------------------
  let issued = 0;
  const pending = new M(), functions = new M(), surface = new M(), listed = new M();
  const invoke = (name, input) => new P((resolve, reject) => {
    const args = input === undefined ? {} : input;
    const text = typeof args === "object" && args !== null ? encode(args) : undefined;
    if (text === undefined || text[0] !== "{") throw new TE(`tools.${name} takes one object of arguments`);
    set(pending, ++issued, [resolve, reject]);
    emit("C", text, issued, stringify(name));
  });
  const toolNamed = (name) => {
    if (!has(functions, name)) {
      const f = (input) => invoke(name, input);
      defineProperty(f, "name", { __proto__: null, value: name });
      set(functions, name, freeze(f));
    }
    return get(functions, name);
  };
  const offered = (key) => typeof key === "string" ? get(surface, key) : undefined;
  let missed = null; // the name the script asked `tools` for last, when there is no such tool: for the error's message
  const tools = new Proxy(create(null), {
    __proto__: null,
    get: (_, key) => {
      const f = offered(key);
      missed = f === undefined && typeof key === "string" ? clip(key, 200) : null;
      return f;
    },
    has: (_, key) => offered(key) !== undefined,
    ownKeys: () => { const keys = []; eachOfMap(listed, (_, key) => { keys[keys.length] = key; }); return keys; },
    getOwnPropertyDescriptor: (_, key) => {
      const f = offered(key);
      return f && { value: f, writable: false, enumerable: has(listed, key), configurable: true };
    },
    set: () => false, defineProperty: () => false, deleteProperty: () => false, setPrototypeOf: () => false, preventExtensions: () => false,
  });
  const offer = (entries) => { // [[own name, camelCase alias | null], …]
    clear(surface); clear(listed);
    for (let i = 0; i < entries.length; i++) {
      const alias = entries[i][1];
      if (alias !== null) { set(surface, alias, toolNamed(entries[i][0])); set(listed, alias, true); }
    }
    for (let i = 0; i < entries.length; i++) set(surface, entries[i][0], toolNamed(entries[i][0]));
  };

  // --- globals ----------------------------------------------------------------------------------------------------
  const restorers = [];
  const restorable = (name, value) => { // assignable by a script, put back before the next evaluation
    let current = value, standard = value;
    const restore = (next) => { current = standard = next === undefined ? standard : next; };
    defineProperty(global, name, { __proto__: null, configurable: false, enumerable: false, get: () => current, set: (next) => { current = next; } });
    restorers[restorers.length] = restore;
    return restore;
  };
  const print = (parts) => { let line = ""; for (let i = 0; i < parts.length; i++) line += (i ? " " : "") + show(parts[i]); emit("L", stringify(clip(line, limits.line))); };
  const consoleObject = {};
  for (const name of ["log", "info", "debug", "warn", "error", "trace", "dir", "table", "group"]) consoleObject[name] = { [name](...parts) { print(parts); } }[name];
  for (const name of ["groupEnd", "count", "countReset", "time", "timeLog", "timeEnd", "clear"]) consoleObject[name] = { [name]() {} }[name];
  consoleObject.assert = function assert(ok, ...parts) { if (!ok) print(["Assertion failed:", ...parts]); };
  restorable("tools", tools);
  restorable("console", freeze(consoleObject));
  const setArgs = restorable("args", null);
  let contract = freeze({ context: "ptc", version: 3 });
  defineProperty(global, "SANDBOX_CONTRACT", { __proto__: null, configurable: false, enumerable: false, get: () => contract });
  defineProperty(global, "defineCodeState", data({ defineCodeState(f) { return f; } }.defineCodeState));
  const deepFreeze = (value) => {
    const queue = [value];
    for (let i = 0; i < queue.length; i++) {
      const item = queue[i];
      if (typeof item !== "object" || item === null) continue;
      const keys = ownKeys(freeze(item));
      for (let k = 0; k < keys.length; k++) queue[queue.length] = item[keys[k]];
    }
  };

  // --- one evaluation -----------------------------------------------------------------------------------------------
  let settled = null, reported = true;
  const failed = (e) => { if (settled === null) { settled = describe(e); settled.ok = false; settled.missed = missed; reported = false; } };
  const succeeded = (value) => {
    try {
      let text;
      try { text = encode(value); } catch (e) { if (!isProto(TE.prototype, e)) throw e; text = encodeCyclic(value); if (text.length > limits.value) throw e; }
      const done = { __proto__: null, ok: true, has: value !== undefined, value: text === undefined ? "null" : text, shown: clip(show(value), limits.shown) };
      if (settled === null) { settled = done; reported = false; }
    } catch (e) { failed(e); }
  };
  const drive = async (f, handle) => { try { succeeded(await apply(f, undefined, [handle])); } catch (e) { failed(e); } };
  return freeze({
    start(text) {
      const request = parse(text), args = request.args;
      settled = null; reported = true; issued = 0; missed = null; clear(pending);
      now = request.now; reads = 0; seedWith(request.seed);
      contract = freeze({ context: request.context, version: 3 });
      offer(request.tools);
      for (let i = 0; i < restorers.length; i++) restorers[i]();
      if (typeof args === "object" && args !== null) {
        if (hasOwn(args, "variables")) deepFreeze(args.variables);
        if (request.module && !isArray(args) && !hasOwn(args, "tools")) defineProperty(args, "tools", { __proto__: null, value: tools, writable: true, enumerable: true, configurable: true });
      }
      setArgs(args);
      const names = request.names;
      for (let i = 0; i < names.length; i++) {
        if (!hasOwn(global, names[i])) defineProperty(global, names[i], { __proto__: null, value: undefined, writable: true, enumerable: true, configurable: true });
      }
      const handle = { exported: undefined, globals: global, finish: () => {
        if (typeof handle.exported !== "function") throw new TE("the default export is not a function");
        return apply(handle.exported, undefined, [args]);
      } };
      let f;
      try { f = evaluate(request.code); } catch (e) { failed(e); return; }
      drive(f, handle);
    },
    settle(seq, ok, text, at) { // false: no such call is waiting
      const waiting = get(pending, seq);
      if (waiting === undefined) return false;
      remove(pending, seq);
      advance(at);
      const answer = parse(text);
      if (ok) { waiting[0](answer); return true; }
      const e = new E(answer.message), extra = answer.data, keys = extra === null ? [] : ownKeys(extra);
      for (let i = 0; i < keys.length; i++) if (keys[i] !== "message" && keys[i] !== "stack") defineProperty(e, keys[i], data(extra[keys[i]]));
      defineProperty(e, "name", data(answer.name));
      waiting[1](e);
      return true;
    },
    uncaught(name, message) { failed({ name, message }); },
    report() { if (reported) return ""; reported = true; return stringify(settled); },
    regex(text) { // a fresh RegExp each time: no lastIndex is carried over
      const request = parse(text);
      let expression;
      try { expression = new RX(request.pattern, request.flags); } catch (e) { return stringify({ malformed: describe(e).message }); }
      return stringify({ found: request.text === null ? false : B(apply(regexTest, expression, [request.text])) });
    },
  });
}
