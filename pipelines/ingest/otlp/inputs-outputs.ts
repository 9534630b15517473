import {
  consumeValue,
  readAttributeHead,
  readText,
  readValueHead,
  writeJsonTexts,
  writeUnwrappedValue,
  writeValue,
} from './any-value.ts';
import type { RoleName } from './attribute-roles.ts';
import { consumeTree, type RenameRules, writeTree } from './attribute-tree.ts';
import { detectEmbeddedJson, findEmbeddedMembers } from './json-text.ts';
import type { AttributeList } from './span.ts';
import type { SpanContext } from './span-context.ts';
import {
  findAttribute,
  type SpanEvent,
  writeChoiceEvents,
  writeListedEvents,
  writeMessageEvents,
} from './span-events.ts';

/**
 * Writes the member `invocation_params`, which contains the parameters of a model or tool call; writes nothing if the
 * span has none.
 */
export function writeParameters(context: SpanContext): void {
  const { out, span } = context;
  if (!parameterRoles.some((role) => span.find(role) >= 0)) return;
  const before = out.position;
  out.ascii('"invocation_params":{');
  const inner = out.position;
  const written = new Set<string>();
  writeParameterObject(context, inner, written);
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
function writeParameterObject(context: SpanContext, inner: number, written: Set<string>): void {
  const { out, span, reader } = context;
  const index = span.find('parameters');
  if (index < 0) return;
  const { kind, start, end } = readAttributeHead(context, index);
  const members = kind === 'string' ? findEmbeddedMembers(reader.source, start, end, context.maxJsonDepth) : undefined;
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
  const { out } = context;
  written.add(key);
  out.ascii(out.position === inner ? `"${key}":` : `,"${key}":`);
  consumeValue(context, index);
}

/** Sources of the inputs or outputs of a run, most specific first. */
interface Side {
  /** Name of the member for a value that is not an object. */
  readonly key: 'input' | 'output';
  /** Attribute that contains a list of messages. */
  readonly messages: RoleName;
  /** Families of attributes that represent a list of messages in flattened form. */
  readonly messageParts: readonly RoleName[];
  /** Attributes that contain the complete inputs or outputs. */
  readonly whole: readonly RoleName[];
  /** The attribute in `whole` in which OpenInference repeats messages and documents. */
  readonly duplicateRole: RoleName;
  readonly mimeType: RoleName;
  readonly writeSpanEvents: (context: SpanContext, events: readonly SpanEvent[]) => boolean;
  /** Events that carry the complete inputs or outputs, each with the attribute that contains them. */
  readonly contentEvents: ReadonlyArray<readonly [event: string, attribute: string]>;
}

const inputSide: Side = {
  key: 'input',
  messages: 'inputMessages',
  messageParts: ['promptPart', 'inputMessagePart'],
  whole: ['prompt', 'entityInput', 'inputValue', 'toolInput', 'sdkPrompt', 'sdkValues', 'otherInput'],
  duplicateRole: 'inputValue',
  mimeType: 'inputMimeType',
  writeSpanEvents: writeMessageEvents,
  contentEvents: [
    ['gen_ai.content.prompt', 'gen_ai.prompt'],
    ['gen_ai.client.inference.operation.details', 'gen_ai.input.messages'],
  ],
};

const outputSide: Side = {
  key: 'output',
  messages: 'outputMessages',
  messageParts: ['completionPart', 'outputMessagePart'],
  whole: ['completion', 'entityOutput', 'outputValue', 'toolOutput', 'sdkOutput', 'sdkEmbeddings', 'otherOutput'],
  duplicateRole: 'outputValue',
  mimeType: 'outputMimeType',
  writeSpanEvents: writeChoiceEvents,
  contentEvents: [
    ['gen_ai.content.completion', 'gen_ai.completion'],
    ['gen_ai.client.inference.operation.details', 'gen_ai.output.messages'],
  ],
};

const documentRenameRules: RenameRules = { key: new Map([['content', 'page_content']]), json: new Set(['metadata']) };

/** Writes the run's inputs as a JSON object; returns undefined if the span has none. */
export function writeInputs(context: SpanContext, events: readonly SpanEvent[]): Buffer | undefined {
  return writeSide(context, inputSide, events);
}

/** Writes the run's outputs as a JSON object; returns undefined if the span has none. */
export function writeOutputs(context: SpanContext, events: readonly SpanEvent[]): Buffer | undefined {
  return writeSide(context, outputSide, events);
}

function writeSide(context: SpanContext, side: Side, events: readonly SpanEvent[]): Buffer | undefined {
  const { out } = context;
  const start = out.position;
  const written =
    writeMessages(context, side) ||
    writeListedEvents(context, side.key) ||
    (side.key === 'output' && writeSdkResponse(context)) ||
    writeWholeAttribute(context, side) ||
    writeFromEvents(context, side, events);
  return written ? out.since(start) : undefined;
}

/**
 * Writes `{"messages":[…]}`, with the span's documents and instructions. Also adds the complete value, except for
 * `input.value` and `output.value` of OpenInference, which only repeat the messages and documents. Embedding vectors
 * are added to the outputs, unless the span has `output.value`, which contains them.
 */
function writeMessages(context: SpanContext, side: Side): boolean {
  const { span, out } = context;
  const start = out.position;
  const whole = span.find(side.messages);
  if (whole >= 0) {
    out.ascii('{"messages":');
    consumeValue(context, whole);
  } else {
    const family = side.messageParts.find((role) => span.find(role) >= 0);
    const tree = family && consumeTree(context, family);
    if (tree) {
      out.ascii('{"messages":');
      writeTree(context, span.attributes, tree);
    }
  }
  const isOutput = side.key === 'output';
  const documents = isOutput ? consumeTree(context, 'documentPart') : undefined;
  const documentList = isOutput ? span.find('documents') : -1;
  if (documents !== undefined || documentList >= 0) {
    out.ascii(out.position === start ? '{"documents":' : ',"documents":');
    if (documents !== undefined) writeTree(context, span.attributes, documents, documentRenameRules);
    else consumeValue(context, documentList);
  }
  const hasDuplicate = span.find(side.duplicateRole) >= 0;
  const embeddings = isOutput ? consumeTree(context, 'embeddingPart') : undefined;
  if (embeddings !== undefined && !hasDuplicate) {
    out.ascii(out.position === start ? '{"embeddings":' : ',"embeddings":');
    writeTree(context, span.attributes, embeddings);
  }
  if (hasDuplicate && out.position !== start) {
    span.take(span.find(side.duplicateRole));
    consumeMimeType(context, side);
  }
  const instructions = side.key === 'input' ? span.find('systemInstructions') : -1;
  if (instructions >= 0) {
    out.ascii(out.position === start ? '{"system_instructions":' : ',"system_instructions":');
    consumeValue(context, instructions);
  }
  if (out.position === start) return false;
  const complete = findWholeAttribute(context, side);
  if (complete >= 0) {
    out.ascii(`,"${side.key}":`);
    consumeValue(context, complete);
  }
  out.byte(0x7d);
  return true;
}

const sdkResponseMembers: ReadonlyArray<readonly [RoleName, string]> = [
  ['sdkOutput', 'output'],
  ['sdkReasoning', 'reasoning'],
  ['sdkToolCalls', 'tool_calls'],
];

/** Writes the parts of a response of the Vercel AI SDK, if it has other parts than its text. */
function writeSdkResponse(context: SpanContext): boolean {
  const { span, out } = context;
  if (span.find('sdkReasoning') < 0 && span.find('sdkToolCalls') < 0) return false;
  const start = out.position;
  for (const [role, key] of sdkResponseMembers) {
    const index = span.find(role);
    if (index < 0) continue;
    out.ascii(out.position === start ? `{"${key}":` : `,"${key}":`);
    consumeValue(context, index);
  }
  out.byte(0x7d);
  return true;
}

function findWholeAttribute({ span }: SpanContext, side: Side): number {
  for (const role of side.whole) {
    const index = span.find(role);
    if (index >= 0 && !span.taken[index]) return index;
  }
  return -1;
}

/**
 * Writes the attribute that contains the complete inputs or outputs. Writes an object unchanged, and any other value as
 * the member `input` or `output`.
 */
function writeWholeAttribute(context: SpanContext, side: Side): boolean {
  const { span } = context;
  const index = findWholeAttribute(context, side);
  if (index < 0) return false;
  const { role } = span.attributes.names[index]!.role;
  const hasMimeType = role === 'inputValue' || role === 'outputValue';
  const isPlainText = hasMimeType && consumeMimeType(context, side) === 'text/plain';
  if (role === 'sdkValues' || role === 'sdkEmbeddings') {
    context.out.ascii(`{"${side.key}":`);
    consumeValue(context, index, writeJsonTexts);
    context.out.byte(0x7d);
  } else {
    writeWhole(context, side, span.attributes, index, isPlainText);
    span.take(index);
  }
  return true;
}

function consumeMimeType(context: SpanContext, { mimeType }: Side): string | undefined {
  const index = context.span.find(mimeType);
  if (index < 0) return undefined;
  context.span.take(index);
  return readText(context, index);
}

function writeWhole(context: SpanContext, side: Side, from: AttributeList, index: number, isPlainText: boolean): void {
  const { out, reader } = context;
  const start = from.valueStarts[index]!;
  const end = from.valueEnds[index]!;
  const value = readValueHead(reader, start, end);
  const isText = value.kind === 'string' || value.kind === 'bytes';
  const json =
    isText && !isPlainText
      ? detectEmbeddedJson(reader.source, value.start, value.end, context.maxJsonDepth)
      : undefined;
  if (json === 'object') {
    out.copy(reader.source, value.start, value.end);
    return;
  }
  if (value.kind === 'list') {
    writeValue(context, start, end);
    return;
  }
  out.ascii(`{"${side.key}":`);
  if (json === 'array') out.copy(reader.source, value.start, value.end);
  else writeValue(context, start, end);
  out.byte(0x7d);
}

function writeFromEvents(context: SpanContext, side: Side, events: readonly SpanEvent[]): boolean {
  if (events.length === 0) return false;
  if (side.writeSpanEvents(context, events)) return true;
  for (const [name, attribute] of side.contentEvents) {
    const event = events.find((one) => one.name === name && findAttribute(one.attributes, attribute) >= 0);
    if (event === undefined) continue;
    const index = findAttribute(event.attributes, attribute);
    if (attribute.endsWith('messages')) {
      context.out.ascii('{"messages":');
      writeUnwrappedValue(context, event.attributes.valueStarts[index]!, event.attributes.valueEnds[index]!);
      context.out.byte(0x7d);
    } else {
      writeWhole(context, side, event.attributes, index, false);
      event.taken = event.attributes.count === 1;
    }
    return true;
  }
  return false;
}
