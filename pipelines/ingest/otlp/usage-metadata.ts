import { consumeValue, readAttributeHead, readNumber } from './any-value.ts';
import type { RoleName } from './attribute-roles.ts';
import { detectEmbeddedJson } from './json-text.ts';
import type { SpanContext } from './span-context.ts';

const countRoles: ReadonlyArray<readonly [RoleName, string]> = [
  ['inputTokens', 'input_tokens'],
  ['outputTokens', 'output_tokens'],
  ['totalTokens', 'total_tokens'],
  ['inputCost', 'input_cost'],
  ['outputCost', 'output_cost'],
  ['totalCost', 'total_cost'],
];

const detailGroups: ReadonlyArray<{
  whole: RoleName;
  key: string;
  counts: ReadonlyArray<readonly [RoleName, string]>;
}> = [
  {
    whole: 'inputDetails',
    key: 'input_token_details',
    counts: [
      ['cacheReadTokens', 'cache_read'],
      ['cacheCreationTokens', 'cache_creation'],
      ['inputAudioTokens', 'audio'],
      ['inputImageTokens', 'image'],
    ],
  },
  {
    whole: 'outputDetails',
    key: 'output_token_details',
    counts: [
      ['reasoningTokens', 'reasoning'],
      ['outputAudioTokens', 'audio'],
      ['outputImageTokens', 'image'],
    ],
  },
];

const costRoles: ReadonlySet<RoleName> = new Set(['inputCost', 'outputCost', 'totalCost']);

/**
 * Writes the usage of a model call as `{"input_tokens":…}`, in the form of the public run format. Writes the SDK's own
 * object if the span has one, otherwise an object with the counts from separate attributes. Returns false if the span
 * has neither.
 */
export function writeUsage(context: SpanContext): boolean {
  const { span, out } = context;
  const whole = span.find('usage');
  if (whole >= 0 && isObject(context, whole)) {
    consumeValue(context, whole);
    for (const [role] of countRoles) consumeIfPresent(context, role);
    for (const { whole: object, counts: parts } of detailGroups) {
      consumeIfPresent(context, object);
      for (const [role] of parts) consumeIfPresent(context, role);
    }
    return true;
  }
  const start = out.position;
  out.byte(0x7b);
  const empty = out.position;
  writeCounts(context, countRoles, empty);
  for (const { whole: object, key, counts: parts } of detailGroups) {
    const index = span.find(object);
    const before = out.position;
    out.ascii(before === empty ? `"${key}":` : `,"${key}":`);
    if (index >= 0 && isObject(context, index)) {
      consumeValue(context, index);
      continue;
    }
    out.byte(0x7b);
    const inner = out.position;
    writeCounts(context, parts, inner);
    if (out.position === inner) out.rewind(before);
    else out.byte(0x7d);
  }
  if (out.position === empty) {
    out.rewind(start);
    return false;
  }
  out.byte(0x7d);
  return true;
}

function writeCounts(context: SpanContext, roles: ReadonlyArray<readonly [RoleName, string]>, start: number): void {
  const { span, out } = context;
  for (const [role, key] of roles) {
    const index = span.find(role);
    if (index < 0) continue;
    const number = readNumber(context, index);
    if (number === undefined || !(costRoles.has(role) || Number.isInteger(number))) continue;
    out.ascii(out.position === start ? `"${key}":${number}` : `,"${key}":${number}`);
    span.take(index);
  }
}

function consumeIfPresent({ span }: SpanContext, role: RoleName): void {
  const index = span.find(role);
  if (index >= 0) span.take(index);
}

function isObject(context: SpanContext, index: number): boolean {
  const { kind, start, end } = readAttributeHead(context, index);
  if (kind === 'list') return true;
  return kind === 'string' && detectEmbeddedJson(context.reader.source, start, end, context.maxJsonDepth) === 'object';
}
