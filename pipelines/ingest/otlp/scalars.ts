import { readHead } from './any-value.ts';
import type { SpanContext } from './span-context.ts';

/** The text of a string attribute; undefined for other kinds. */
export function readText(context: SpanContext, index: number): string | undefined {
  const value = readAttributeHead(context, index);
  return value.kind === 'string' ? context.text(value.start, value.end) : undefined;
}

/** The text of the first attribute with the role, if it is a non-empty string; marks the attribute as taken. */
export function consumeText(
  context: SpanContext,
  role: Parameters<SpanContext['span']['find']>[0],
): string | undefined {
  const index = context.span.find(role);
  if (index < 0) return undefined;
  const text = readText(context, index);
  if (text === undefined || text === '') return undefined;
  context.span.take(index);
  return text;
}

/** Reads a boolean from a boolean attribute or from text. */
export function readFlag(context: SpanContext, index: number): boolean {
  const value = readAttributeHead(context, index);
  if (value.kind === 'bool') return value.number === 1;
  return value.kind === 'string' && context.text(value.start, value.end).toLowerCase() === 'true';
}

/** Reads a non-negative number from an integer, a double or text; otherwise undefined. */
export function readNumber(context: SpanContext, index: number): number | undefined {
  const value = readAttributeHead(context, index);
  let number: number;
  if (value.kind === 'int') number = value.high * 0x1_0000_0000 + value.low;
  else if (value.kind === 'double') number = value.number;
  else if (value.kind === 'string' && value.end - value.start < 32 && value.end > value.start) {
    number = Number(context.text(value.start, value.end));
  } else return undefined;
  return number >= 0 && number <= Number.MAX_SAFE_INTEGER ? number : undefined;
}

export function readAttributeHead(context: SpanContext, index: number) {
  const { attributes } = context.span;
  return readHead(context.reader, attributes.valueStarts[index]!, attributes.valueEnds[index]!);
}
