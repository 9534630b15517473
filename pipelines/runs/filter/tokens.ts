import { createFilterError } from './syntax.ts';

export type Token =
  | { readonly kind: 'name' | 'sign'; readonly at: number; readonly text: string }
  | { readonly kind: 'string'; readonly at: number; readonly text: string; readonly value: string }
  | { readonly kind: 'number'; readonly at: number; readonly text: string; readonly value: number }
  | { readonly kind: 'end'; readonly at: number; readonly text: '' };

const spacePattern = /\s*/y;
const namePattern = /[A-Za-z_][A-Za-z0-9_]*/y;
const numberPattern = /-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const signs = '(),[]';

const escapes: Readonly<Record<string, string>> = {
  n: '\n',
  r: '\r',
  t: '\t',
  b: '\b',
  f: '\f',
  '/': '/',
  '\\': '\\',
  '"': '"',
  "'": "'",
};

/** Reads the tokens of an expression one after the other. */
export class TokenReader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Reads the next token. @throws INVALID_FILTER if no token begins at the current position. */
  next(): Token {
    this.#at += this.#match(spacePattern)?.length ?? 0;
    const at = this.#at;
    const first = this.#text[at];
    if (first === undefined) return { kind: 'end', at, text: '' };
    if (first === '"' || first === "'") return this.#readString(first);
    const token = this.#readPlain(at, first);
    if (token === undefined) {
      const found = String.fromCodePoint(this.#text.codePointAt(at)!);
      throw createFilterError(at, `found \`${found}\`, expected a name, a value or one of \`( ) [ ] ,\``);
    }
    this.#at = at + token.text.length;
    return token;
  }

  #readPlain(at: number, first: string): Token | undefined {
    if (signs.includes(first)) return { kind: 'sign', at, text: first };
    const name = this.#match(namePattern);
    if (name !== undefined) return { kind: 'name', at, text: name };
    const number = this.#match(numberPattern);
    return number === undefined ? undefined : { kind: 'number', at, text: number, value: Number(number) };
  }

  /**
   * Reads a string. An unknown escape keeps its backslash, so that `\%` reaches `like`. Python, in which many filters
   * are written, does the same.
   */
  #readString(quote: string): Token {
    const begin = this.#at;
    let value = '';
    for (let at = begin + 1; at < this.#text.length; at++) {
      const character = this.#text[at]!;
      if (character === quote) {
        this.#at = at + 1;
        return { kind: 'string', at: begin, text: this.#text.slice(begin, at + 1), value };
      }
      if (character !== '\\') {
        value += character;
        continue;
      }
      at += 1;
      const escaped = this.#text[at] ?? '';
      const code = /^[0-9a-fA-F]{4}/.exec(this.#text.slice(at + 1, at + 5))?.[0];
      if (escaped === 'u' && code !== undefined) {
        value += String.fromCharCode(Number.parseInt(code, 16));
        at += code.length;
      } else {
        value += escapes[escaped] ?? `\\${escaped}`;
      }
    }
    throw createFilterError(begin, `the string that begins here has no closing \`${quote}\``);
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    return pattern.exec(this.#text)?.[0];
  }
}

const maxShownCharacters = 40;

/** Describes a token for an error message. */
export function describeToken(token: Token): string {
  if (token.kind === 'end') return 'the end of the expression';
  const characters = [...token.text];
  const text =
    characters.length > maxShownCharacters ? `${characters.slice(0, maxShownCharacters).join('')}…` : token.text;
  return `\`${text}\``;
}
