// The screen of a terminal: text with colours, a cursor, and what moves it (the common part of VT100 and xterm).

const MAX_HISTORY = 5000;

const blank = () => ({ text: " ", style: "" });

export class Screen {
  constructor(columns, rows) {
    Object.assign(this, { columns, rows, x: 0, y: 0, style: {}, saved: { x: 0, y: 0 }, top: 0, bottom: rows - 1, history: [], state: "text", argument: "", hidden: false, title: "" });
    this.lines = Array.from({ length: rows }, () => this.emptyLine());
    this.replies = [];
  }

  emptyLine() {
    return Array.from({ length: this.columns }, blank);
  }

  resize(columns, rows) {
    const fit = (line) => (line.length > columns ? line.slice(0, columns) : line.concat(Array.from({ length: columns - line.length }, blank)));
    this.columns = columns;
    this.lines = this.lines.map(fit);
    while (this.lines.length > rows) {
      if (this.y < this.lines.length - 1 && this.lines.length > this.y + 1) this.lines.pop();
      else {
        this.history.push(this.lines.shift());
        this.y--;
      }
    }
    while (this.lines.length < rows) this.lines.push(this.emptyLine());
    this.rows = rows;
    this.top = 0;
    this.bottom = rows - 1;
    this.x = Math.min(this.x, columns - 1);
    this.y = Math.max(0, Math.min(this.y, rows - 1));
  }

  /** Takes what a program prints. */
  write(text) {
    for (const character of text) this[this.state](character);
  }

  text(character) {
    switch (character) {
      case "\u001b": this.state = "escape"; return;
      case "\n": case "\u000b": case "\u000c": this.lineFeed(); return;
      case "\r": this.x = 0; return;
      case "\b": this.x = Math.max(0, this.x - 1); return;
      case "\t": this.x = Math.min(this.columns - 1, (Math.floor(this.x / 8) + 1) * 8); return;
    }
    if (character < " " || character === "\u007f") return;
    if (this.x >= this.columns) {
      this.x = 0;
      this.lineFeed();
    }
    this.lines[this.y][this.x] = { text: character, style: this.styleName() };
    this.x++;
  }

  lineFeed() {
    if (this.y === this.bottom) this.scroll();
    else if (this.y < this.rows - 1) this.y++;
  }

  scroll() {
    const [line] = this.lines.splice(this.top, 1);
    if (this.top === 0 && !this.other) {
      this.history.push(line);
      if (this.history.length > MAX_HISTORY) this.history.shift();
    }
    this.lines.splice(this.bottom, 0, this.emptyLine());
  }

  scrollBack() {
    this.lines.splice(this.bottom, 1);
    this.lines.splice(this.top, 0, this.emptyLine());
  }

  escape(character) {
    this.state = "text";
    switch (character) {
      case "[": this.state = "sequence"; this.argument = ""; break;
      case "]": this.state = "command"; this.argument = ""; break;
      case "(": case ")": case "#": this.state = "skip"; break;
      case "7": this.saved = { x: this.x, y: this.y }; break;
      case "8": Object.assign(this, this.saved); break;
      case "D": this.lineFeed(); break;
      case "E": this.x = 0; this.lineFeed(); break;
      case "M": if (this.y === this.top) this.scrollBack(); else this.y = Math.max(0, this.y - 1); break;
      case "c": Object.assign(this, new Screen(this.columns, this.rows), { history: this.history }); break;
    }
  }

  skip() {
    this.state = "text";
  }

  /** Commands such as the title of the window; they are read to their end and ignored. */
  command(character) {
    if (character === "\u0007") this.state = "text";
    else if (character === "\u001b") this.state = "skip";
    else if (this.argument.length > 4096) this.state = "text";
    else this.argument += character;
  }

  sequence(character) {
    if (character < "@" || character > "~") {
      if (this.argument.length < 64) this.argument += character;
      return;
    }
    this.state = "text";
    const isPrivate = this.argument.startsWith("?");
    const numbers = this.argument.replace(/^[?>=]/, "").split(";").map((part) => (part === "" ? null : parseInt(part, 10) || 0));
    if (isPrivate) this.mode(numbers, character === "h");
    else if (!/[>=]/.test(this.argument)) this.control(character, numbers);
  }

  control(name, numbers) {
    const count = Math.max(1, numbers[0] ?? 1);
    const limit = (value, max) => Math.max(0, Math.min(max, value));
    const line = this.lines[this.y];
    switch (name) {
      case "A": this.y = limit(this.y - count, this.rows - 1); break;
      case "B": case "e": this.y = limit(this.y + count, this.rows - 1); break;
      case "C": case "a": this.x = limit(this.x + count, this.columns - 1); break;
      case "D": this.x = limit(this.x - count, this.columns - 1); break;
      case "E": this.x = 0; this.y = limit(this.y + count, this.rows - 1); break;
      case "F": this.x = 0; this.y = limit(this.y - count, this.rows - 1); break;
      case "G": case "`": this.x = limit(count - 1, this.columns - 1); break;
      case "d": this.y = limit(count - 1, this.rows - 1); break;
      case "H": case "f": this.y = limit((numbers[0] || 1) - 1, this.rows - 1); this.x = limit((numbers[1] || 1) - 1, this.columns - 1); break;
      case "J": this.eraseScreen(numbers[0] || 0); break;
      case "K": this.eraseLine(this.y, numbers[0] || 0); break;
      case "L": this.insertLines(count); break;
      case "M": this.deleteLines(count); break;
      case "P": line.splice(this.x, Math.min(count, this.columns)); while (line.length < this.columns) line.push(blank()); break;
      case "@": for (let i = 0; i < Math.min(count, this.columns); i++) line.splice(this.x, 0, blank()); line.length = this.columns; break;
      case "X": for (let i = this.x; i < Math.min(this.columns, this.x + count); i++) line[i] = blank(); break;
      case "S": for (let i = 0; i < Math.min(count, this.rows); i++) this.scroll(); break;
      case "T": for (let i = 0; i < Math.min(count, this.rows); i++) this.scrollBack(); break;
      case "m": this.colour(numbers); break;
      case "r": this.top = limit((numbers[0] || 1) - 1, this.rows - 1); this.bottom = limit((numbers[1] || this.rows) - 1, this.rows - 1); this.x = 0; this.y = this.top; break;
      case "s": this.saved = { x: this.x, y: this.y }; break;
      case "u": Object.assign(this, this.saved); break;
      case "n": if (numbers[0] === 6) this.replies.push(`\u001b[${this.y + 1};${this.x + 1}R`); break;
      case "c": this.replies.push("\u001b[?1;2c"); break;
    }
  }

  mode(numbers, isOn) {
    for (const number of numbers) {
      if (number === 25) this.hidden = !isOn;
      else if (number === 1) this.arrows = isOn;
      else if (number === 1049 || number === 47 || number === 1047) this.alternate(isOn);
    }
  }

  /** Programs such as editors use a second screen, and leave the first as it was. */
  alternate(isOn) {
    if (isOn && !this.other) {
      this.other = { lines: this.lines, x: this.x, y: this.y };
      this.lines = Array.from({ length: this.rows }, () => this.emptyLine());
    } else if (!isOn && this.other) {
      const { lines, x, y } = this.other;
      this.other = null;
      Object.assign(this, { lines, x, y });
      this.resize(this.columns, this.rows);
    }
  }

  eraseScreen(what) {
    const from = what === 0 ? this.y + 1 : 0;
    const until = what === 1 ? this.y : this.rows;
    for (let row = from; row < until; row++) this.lines[row] = this.emptyLine();
    if (what < 2) this.eraseLine(this.y, what);
    if (what === 3) this.history = [];
  }

  eraseLine(row, what) {
    const from = what === 0 ? this.x : 0;
    const until = what === 1 ? this.x + 1 : this.columns;
    for (let column = from; column < Math.min(until, this.columns); column++) this.lines[row][column] = blank();
  }

  insertLines(count) {
    for (let i = 0; i < Math.min(count, this.rows); i++) {
      this.lines.splice(this.bottom, 1);
      this.lines.splice(this.y, 0, this.emptyLine());
    }
  }

  deleteLines(count) {
    for (let i = 0; i < Math.min(count, this.rows); i++) {
      this.lines.splice(this.y, 1);
      this.lines.splice(this.bottom, 0, this.emptyLine());
    }
  }

  colour(numbers) {
    for (let index = 0; index < numbers.length; index++) {
      const number = numbers[index] || 0;
      if (number === 0) this.style = {};
      else if (number === 1) this.style.bold = true;
      else if (number === 4) this.style.line = true;
      else if (number === 7) this.style.inverse = true;
      else if (number === 22) delete this.style.bold;
      else if (number === 24) delete this.style.line;
      else if (number === 27) delete this.style.inverse;
      else if ((number >= 30 && number <= 37) || (number >= 90 && number <= 97)) this.style.front = number % 10;
      else if (number === 39) delete this.style.front;
      else if ((number >= 40 && number <= 47) || (number >= 100 && number <= 107)) this.style.back = number % 10;
      else if (number === 49) delete this.style.back;
      else if (number === 38 || number === 48) {
        // Of the many colours of 256 and true colour, the nearest of the eight is close enough.
        const isIndexed = numbers[index + 1] === 5;
        if (isIndexed && numbers[index + 2] < 16) this.style[number === 38 ? "front" : "back"] = numbers[index + 2] % 8;
        index += isIndexed ? 2 : 4;
      }
    }
  }

  styleName() {
    const { bold, line, inverse, front, back } = this.style;
    const names = [];
    if (bold) names.push("t-bold");
    if (line) names.push("t-line");
    if (inverse) names.push("t-inverse");
    if (front !== undefined) names.push(`t-f${front}`);
    if (back !== undefined) names.push(`t-b${back}`);
    return names.join(" ");
  }

  /** Returns a line as runs of equal style; the cursor is a run of its own. */
  runs(line, cursor = -1) {
    const runs = [];
    line.forEach(({ text, style }, column) => {
      const name = column === cursor ? `${style} t-cursor` : style;
      const last = runs.at(-1);
      if (last && last.style === name) last.text += text;
      else runs.push({ text, style: name });
    });
    const end = runs.at(-1);
    if (end && !end.style) end.text = end.text.replace(/ +$/, "");
    return runs;
  }
}
