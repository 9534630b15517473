import { cutMark } from '../../infra/isolation/read-lines.ts';
import { scrubText } from '../../infra/telemetry/logger.ts';

/** Shorter values are not masked, because they may be parts of many words. */
const minMaskedCharacters = 6;
/** Longer than a line of a log, because masking makes lines shorter. */
const maxTextCharacters = 16_000;

/**
 * Returns a function that replaces the values of secrets, and everything that looks like a secret. Output arrives in
 * lines, so each line of a value is replaced too, and programs often write JSON, so also the form that a value has in
 * JSON. The function takes time linear in the length of the text, however many secrets there are, and cuts texts of more
 * than 16,000 characters.
 */
export function createMask(values: Iterable<string>): (text: string) => string {
  const forms = [...values].flatMap((value) => [
    value,
    JSON.stringify(value).slice(1, -1),
    ...value.split(/[\r\n]+/).map((line) => line.trim()),
  ]);
  const findSecrets = createSecretFinder([...new Set(forms)].filter(({ length }) => length >= minMaskedCharacters));
  return (given) => {
    const text = (given.endsWith(cutMark) ? given.slice(0, -cutMark.length) : given).slice(0, maxTextCharacters);
    const isCut = text.length < given.length;
    let masked = '';
    let shownFrom = 0;
    for (const { start, end } of findSecrets(text, isCut)) {
      masked += `${text.slice(shownFrom, start)}***`;
      shownFrom = end;
    }
    return scrubText(masked + text.slice(shownFrom) + (isCut ? cutMark : ''));
  };
}

/**
 * Removes control characters from output, except tabs and line breaks. NUL characters cannot be stored, and others would
 * change a terminal. Halves of surrogate pairs, which cannot be stored either, are replaced.
 */
export function removeControls(text: string): string {
  return text.toWellFormed().replace(/[^\P{Cc}\t\n]/gu, '');
}

interface TextRange {
  readonly start: number;
  /** Exclusive. */
  readonly end: number;
}

/**
 * Returns a function that finds all secrets in a text, by the algorithm of Aho and Corasick. Those that overlap are one
 * range. A text that was cut may end within a secret.
 */
function createSecretFinder(secrets: readonly string[]): (text: string, isCut: boolean) => readonly TextRange[] {
  // A state is a beginning of a secret; 0 is the empty one. The arrays have an entry for each state.
  const maxStates = secrets.reduce((sum, { length }) => sum + length, 1);
  const parents = new Int32Array(maxStates);
  const codes = new Uint16Array(maxStates);
  const lengths = new Int32Array(maxStates);
  /** The longest end of a state that is a state too. */
  const fallbacks = new Int32Array(maxStates);
  /** Length of the longest secret with which a state ends. */
  const found = new Int32Array(maxStates);
  /** Hash table of the states, by parent and code. */
  const table = new Int32Array(2 ** Math.ceil(Math.log2(2 * maxStates)));
  /** Returns the slot of a state, which contains 0 if there is none. */
  const getSlot = (parent: number, code: number) => {
    let slot = Math.imul(parent + Math.imul(code, 0x85ebca6b), 0x9e3779b1) >>> 0;
    for (; ; slot += 1) {
      const state = table[slot & (table.length - 1)] as number;
      if (state === 0 || (parents[state] === parent && codes[state] === code)) return slot & (table.length - 1);
    }
  };
  const follow = (from: number, code: number) => {
    for (let state = from; ; state = fallbacks[state] as number) {
      const next = table[getSlot(state, code)] as number;
      if (next !== 0 || state === 0) return next;
    }
  };

  // Shorter states are added first, because a state falls back to a shorter one.
  let count = 1;
  let open = secrets.map((secret) => ({ secret, state: 0 }));
  for (let length = 1; open.length > 0; length += 1) {
    for (const each of open) {
      const code = each.secret.charCodeAt(length - 1);
      const slot = getSlot(each.state, code);
      let next = table[slot] as number;
      if (next === 0) {
        next = count;
        count += 1;
        parents[next] = each.state;
        codes[next] = code;
        lengths[next] = length;
        fallbacks[next] = each.state === 0 ? 0 : follow(fallbacks[each.state] as number, code);
        found[next] = found[fallbacks[next] as number] as number;
        table[slot] = next;
      }
      if (length === each.secret.length) found[next] = length;
      each.state = next;
    }
    open = open.filter(({ secret }) => secret.length > length);
  }

  return (text, isCut) => {
    const ranges: TextRange[] = [];
    const add = (end: number, length: number) => {
      let start = end - length;
      for (let last = ranges.at(-1); last !== undefined && last.end >= start; last = ranges.at(-1)) {
        start = Math.min(start, last.start);
        ranges.pop();
      }
      ranges.push({ start, end });
    };
    let state = 0;
    for (let at = 0; at < text.length; at += 1) {
      state = follow(state, text.charCodeAt(at));
      const length = found[state] as number;
      if (length > 0) add(at + 1, length);
    }
    const openLength = lengths[state] as number;
    if (isCut && openLength >= minMaskedCharacters) add(text.length, openLength);
    return ranges;
  };
}
