import type { RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { suggestName } from '../../../infra/errors/suggest-name.ts';
import {
  createFilterError,
  type Expression,
  type FieldName,
  filterLimits,
  type Literal,
  type Operator,
  operators,
} from './syntax.ts';
import { describeToken, type Token, TokenReader } from './tokens.ts';

const functionNames = ['and', 'or', 'not', 'search', ...operators] as const;
const constants: ReadonlyMap<string, boolean | null> = new Map([
  ['true', true],
  ['false', false],
  ['null', null],
]);

/** Matches numbers that may have more than 15 digits, which a JavaScript number keeps, and that stores can compare. */
const longNumber = /^(?=.{16})-?\d{1,76}(?:\.\d{1,76})?$/;

/**
 * Parses an expression.
 *
 * @throws INVALID_FILTER with the position and what is expected there, or if a limit is exceeded.
 */
export function parseFilter(text: string): Expression {
  const { characters } = filterLimits;
  if (text.length > characters)
    throw createFilterError(characters, `the expression is longer than ${characters} characters`);
  return new Parser(text).parse();
}

class Parser {
  readonly #reader: TokenReader;
  #token: Token;
  #terms = 0;

  constructor(text: string) {
    this.#reader = new TokenReader(text);
    this.#token = this.#reader.next();
  }

  parse(): Expression {
    const expression = this.#parseExpression(1);
    if (this.#token.kind !== 'end') throw this.#expected('the end of the expression');
    return expression;
  }

  #parseExpression(depth: number): Expression {
    const { kind, at, text } = this.#token;
    if (depth > filterLimits.depth)
      throw createFilterError(at, `the expression is nested deeper than ${filterLimits.depth} levels`);
    if (kind !== 'name') throw this.#expected('a condition such as `eq(name, "x")`');
    const name = functionNames.find((known) => known === text);
    if (name === undefined)
      throw createFilterError(
        at,
        `unknown function \`${text}\`${suggestName(text, functionNames)}${listFunctions(text)}`,
      );
    this.#advance();
    this.#take('(');
    const expression = this.#parseArguments(name, at, depth);
    this.#take(')', name === 'and' || name === 'or' ? '`,` or `)`' : '`)`');
    return expression;
  }

  #parseArguments(name: (typeof functionNames)[number], at: number, depth: number): Expression {
    if (name === 'and' || name === 'or') return { kind: name, at, terms: this.#parseTerms(depth + 1) };
    if (name === 'not') return { kind: 'not', at, term: this.#parseExpression(depth + 1) };
    this.#terms += 1;
    const { terms } = filterLimits;
    if (this.#terms > terms) throw createFilterError(at, `the expression has more than ${terms} conditions`);
    return name === 'search' ? this.#parseSearch(at) : this.#parseComparison(name, at);
  }

  #parseTerms(depth: number): Expression[] {
    const terms = [this.#parseExpression(depth)];
    while (this.#isSign(',')) {
      this.#advance();
      terms.push(this.#parseExpression(depth));
    }
    return terms;
  }

  #parseComparison(operator: Operator, at: number): Expression {
    const field = this.#parseField();
    this.#take(',');
    return { kind: 'compare', at, operator, field, value: this.#parseValue() };
  }

  /**
   * Parses the arguments of `search`. A string is the text to search for, unless a comma follows; in that case, it is a
   * quoted field.
   */
  #parseSearch(at: number): Expression {
    const first = this.#token;
    const field = this.#parseField('a string or a field');
    if (first.kind === 'string' && !this.#isSign(','))
      return { kind: 'search', at, field: undefined, text: { at: first.at, value: first.value } };
    this.#take(',');
    const text = this.#token;
    if (text.kind !== 'string') throw this.#expected('a string');
    this.#advance();
    return { kind: 'search', at, field, text: { at: text.at, value: text.value } };
  }

  #parseField(expected = 'a field'): FieldName {
    const token = this.#token;
    if (token.kind !== 'name' && token.kind !== 'string') throw this.#expected(expected);
    this.#advance();
    return { at: token.at, name: token.kind === 'string' ? token.value : token.text };
  }

  #parseValue(isListed = false): Literal {
    const token = this.#token;
    const { at } = token;
    if (token.kind === 'string' || token.kind === 'number') {
      if (token.kind === 'number' && !Number.isFinite(token.value)) throw this.#expected('a smaller number');
      this.#advance();
      const isLong = token.kind === 'number' && longNumber.test(token.text);
      return { at, value: token.value, ...(isLong && { digits: token.text }) };
    }
    const constant = token.kind === 'name' ? constants.get(token.text) : undefined;
    if (constant !== undefined) {
      this.#advance();
      return { at, value: constant };
    }
    if (!isListed && this.#isSign('[')) return { at, value: this.#parseList() };
    const values = 'a string, a number, `true`, `false` or `null`';
    throw this.#expected(isListed ? values : `a value: ${values}, or a list in \`[ ]\``);
  }

  #parseList(): Literal[] {
    this.#advance();
    const items = [this.#parseValue(true)];
    while (this.#isSign(',')) {
      this.#advance();
      const { listItems } = filterLimits;
      if (items.length === listItems)
        throw createFilterError(this.#token.at, `the list has more than ${listItems} items`);
      items.push(this.#parseValue(true));
    }
    this.#take(']', '`,` or `]`');
    return items;
  }

  #isSign(sign: string): boolean {
    return this.#token.kind === 'sign' && this.#token.text === sign;
  }

  #take(sign: string, expected = `\`${sign}\``): void {
    if (!this.#isSign(sign)) throw this.#expected(expected);
    this.#advance();
  }

  #advance(): void {
    this.#token = this.#reader.next();
  }

  #expected(expected: string): RunlakeError {
    return createFilterError(this.#token.at, `found ${describeToken(this.#token)}, expected ${expected}`);
  }
}

function listFunctions(name: string): string {
  return suggestName(name, functionNames) === '' ? `, expected one of ${functionNames.join(', ')}` : '';
}
