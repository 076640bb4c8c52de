// Models that reason write it between <think> and </think> at the beginning. Tells the two apart as they stream in.

const BEGIN = "<think>";
const END = "</think>";

export class ThinkingSplit {
  constructor(onThinking, onAnswer) {
    this.onThinking = onThinking;
    this.onAnswer = onAnswer;
    this.state = "before";
    this.held = "";  // could be the first letters of a tag
  }

  push(text) {
    this.held += text;
    if (this.state === "before") this.look();
    if (this.state === "thinking") this.think();
    if (this.state === "answer") this.give(this.onAnswer, this.held.length);
  }

  end() {
    this.give(this.state === "thinking" ? this.onThinking : this.onAnswer, this.held.length);
  }

  look() {
    const text = this.held.trimStart();
    if (text.startsWith(BEGIN)) {
      this.held = text.slice(BEGIN.length);
      this.state = "thinking";
    } else if (!BEGIN.startsWith(text)) {
      this.state = "answer";
    }
  }

  think() {
    const end = this.held.indexOf(END);
    this.give(this.onThinking, end < 0 ? Math.max(0, this.held.length - END.length) : end);
    if (end < 0) return;
    this.held = this.held.slice(END.length);
    this.state = "answer";
  }

  give(to, count) {
    if (count > 0) to(this.held.slice(0, count));
    this.held = this.held.slice(count);
  }
}
