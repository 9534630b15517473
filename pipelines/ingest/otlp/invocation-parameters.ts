import { writeUnwrapped } from './any-value.ts';
import type { RoleName } from './attribute-roles.ts';
import { embeddedMembers } from './embedded-json.ts';
import { readAttributeHead } from './scalars.ts';
import type { SpanContext } from './span-context.ts';

/** Writes the member `invocation_params`, the parameters of a model or tool call; nothing if the span has none. */
export function writeParameters(context: SpanContext): void {
  const { out, span } = context;
  if (!parameterRoles.some((role) => span.find(role) >= 0)) return;
  const before = out.position;
  out.ascii('"invocation_params":{');
  const inner = out.position;
  const written = new Set<string>();
  writeWholeParameters(context, inner, written);
  writeParameter(context, inner, written, span.find('requestModel'), 'model');
  writeParameter(context, inner, written, span.find('genAiToolName'), 'tool_name');
  if (span.find('parameter') >= 0) {
    for (let index = span.find('parameter'); index < span.attributes.count; index++) {
      const { role, key } = span.attributes.names[index]!.role;
      if (role === 'parameter' && key !== undefined) writeParameter(context, inner, written, index, key);
    }
  }
  if (out.position === inner) out.rewind(before);
  else out.byte(0x7d);
}

const parameterRoles: readonly RoleName[] = ['parameters', 'requestModel', 'genAiToolName', 'parameter'];

/** Writes the members of `llm.invocation_parameters`, a JSON object of parameters. */
function writeWholeParameters(context: SpanContext, inner: number, written: Set<string>): void {
  const { out, span, reader } = context;
  const index = span.find('parameters');
  if (index < 0) return;
  const { kind, start, end } = readAttributeHead(context, index);
  const members = kind === 'string' ? embeddedMembers(reader.source, start, end, context.maxJsonDepth) : undefined;
  if (members === undefined) return;
  span.take(index);
  for (const [key, member] of members) {
    if (out.position !== inner) out.byte(0x2c);
    written.add(key);
    out.text(key);
    out.byte(0x3a);
    out.copy(reader.source, member.start, member.end);
  }
}

function writeParameter(context: SpanContext, inner: number, written: Set<string>, index: number, key: string): void {
  if (index < 0 || written.has(key)) return;
  const { out, span } = context;
  written.add(key);
  out.ascii(out.position === inner ? `"${key}":` : `,"${key}":`);
  writeUnwrapped(context, span.attributes.valueStarts[index]!, span.attributes.valueEnds[index]!);
  span.take(index);
}
