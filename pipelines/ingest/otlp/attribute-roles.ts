/**
 * Attribute names with a meaning for runs. All other attributes become metadata.
 * Sources: LangSmith "Trace with OpenTelemetry" (attribute tables) and its SDKs' exporters; OpenTelemetry GenAI semantic
 * conventions, old (`gen_ai.prompt.N.*`) and new (`gen_ai.input.messages`); OpenInference; Traceloop; Vercel AI SDK.
 */
export type RoleName =
  | 'none'
  | 'runId'
  | 'traceId'
  | 'parentId'
  | 'dottedOrder'
  | 'runType'
  | 'name'
  | 'projectId'
  | 'projectName'
  | 'tags'
  | 'exampleId'
  | 'usage'
  | 'runtime'
  | 'traceable'
  | 'isRoot'
  | 'internal'
  | 'serializedName'
  | 'serializedSignature'
  | 'serializedDoc'
  | 'prompt'
  | 'inputMessages'
  | 'systemInstructions'
  | 'promptPart'
  | 'inputMessagePart'
  | 'entityInput'
  | 'inputValue'
  | 'inputMimeType'
  | 'toolInput'
  | 'sdkPrompt'
  | 'completion'
  | 'outputMessages'
  | 'completionPart'
  | 'outputMessagePart'
  | 'entityOutput'
  | 'outputValue'
  | 'outputMimeType'
  | 'toolOutput'
  | 'sdkOutput'
  | 'documentPart'
  | 'embeddingPart'
  | 'inferenceKind'
  | 'traceloopKind'
  | 'requestType'
  | 'operation'
  | 'sdkOperation'
  | 'promptVariables'
  | 'toolName'
  | 'entityName'
  | 'genAiToolName'
  | 'requestModel'
  | 'responseModel'
  | 'modelName'
  | 'embeddingModelName'
  | 'metadataField'
  | 'metadataObject'
  | 'renamedMetadata'
  | 'parameter'
  | 'parameters'
  | 'inputTokens'
  | 'outputTokens'
  | 'totalTokens'
  | 'cacheReadTokens'
  | 'cacheCreationTokens'
  | 'reasoningTokens'
  | 'inputAudioTokens'
  | 'outputAudioTokens'
  | 'inputDetails'
  | 'outputDetails'
  | 'inputCost'
  | 'outputCost'
  | 'totalCost';

export interface AttributeRole {
  readonly role: RoleName;
  /** The key that replaces the attribute's name, if it is renamed. */
  readonly key?: string;
  /** Length of the family's prefix, if the rest of the name is a key or a path. */
  readonly prefixBytes?: number;
}

const plain: AttributeRole = { role: 'none' };

const exact = new Map<string, AttributeRole>();
const named = (role: RoleName, ...names: string[]) => {
  for (const name of names) exact.set(name, { role });
};
const renamed = (role: RoleName, keys: Record<string, string>) => {
  for (const [name, key] of Object.entries(keys)) exact.set(name, { role, key });
};

named('runId', 'langsmith.span.id');
named('traceId', 'langsmith.trace.id');
named('parentId', 'langsmith.span.parent_id');
named('dottedOrder', 'langsmith.span.dotted_order');
named('runType', 'langsmith.span.kind');
named('name', 'langsmith.trace.name');
named('projectId', 'langsmith.trace.session_id');
named('projectName', 'langsmith.trace.session_name');
named('tags', 'langsmith.span.tags', 'tag.tags');
named('exampleId', 'langsmith.reference_example_id');
named('usage', 'langsmith.usage_metadata');
named('runtime', 'langsmith.span.runtime');
named('traceable', 'langsmith.traceable');
named('isRoot', 'langsmith.is_root');
named('internal', 'langsmith.traceable_parent_otel_span_id');
named('serializedName', 'gen_ai.serialized.name');
named('serializedSignature', 'gen_ai.serialized.signature');
named('serializedDoc', 'gen_ai.serialized.doc');

named('prompt', 'gen_ai.prompt');
named('inputMessages', 'gen_ai.input.messages', 'llm.input_messages');
named('systemInstructions', 'gen_ai.system_instructions');
named('entityInput', 'traceloop.entity.input');
named('inputValue', 'input.value');
named('inputMimeType', 'input.mime_type');
named('toolInput', 'gen_ai.tool.call.arguments', 'ai.toolCall.input', 'ai.toolCall.args');
named('sdkPrompt', 'ai.prompt.messages', 'ai.prompt');
named('completion', 'gen_ai.completion');
named('outputMessages', 'gen_ai.output.messages', 'llm.output_messages');
named('entityOutput', 'traceloop.entity.output');
named('outputValue', 'output.value');
named('outputMimeType', 'output.mime_type');
named('toolOutput', 'gen_ai.tool.call.result', 'ai.toolCall.output', 'ai.toolCall.result');
named('sdkOutput', 'ai.response.toolCalls', 'ai.response.object', 'ai.response.choices', 'ai.response.text');

named('inferenceKind', 'openinference.span.kind');
named('traceloopKind', 'traceloop.span.kind');
named('requestType', 'llm.request.type', 'traceloop.llm.request.type');
named('operation', 'gen_ai.operation.name');
named('sdkOperation', 'ai.operationId');
named('promptVariables', 'llm.prompt_template.variables');
named('toolName', 'tool.name');
named('entityName', 'traceloop.entity.name');
named('genAiToolName', 'gen_ai.tool.name');
named('requestModel', 'gen_ai.request.model');
named('responseModel', 'gen_ai.response.model');
named('modelName', 'llm.model_name');
named('embeddingModelName', 'embedding.model_name');

named('metadataObject', 'metadata');
renamed('renamedMetadata', {
  'gen_ai.system': 'ls_provider',
  'gen_ai.provider.name': 'ls_provider',
  'llm.system': 'ls_provider',
  'llm.provider': 'ls_provider',
  // Names that group the runs of one conversation into a thread.
  'session.id': 'session_id',
  'gen_ai.conversation.id': 'conversation_id',
});
named('parameters', 'llm.invocation_parameters', 'embedding.invocation_parameters');
renamed('parameter', {
  'gen_ai.request.temperature': 'temperature',
  'gen_ai.request.top_p': 'top_p',
  'gen_ai.request.top_k': 'top_k',
  'gen_ai.request.max_tokens': 'max_tokens',
  'gen_ai.request.frequency_penalty': 'frequency_penalty',
  'gen_ai.request.presence_penalty': 'presence_penalty',
  'gen_ai.request.seed': 'seed',
  'gen_ai.request.stop_sequences': 'stop',
  'gen_ai.request.encoding_formats': 'encoding_formats',
  'gen_ai.tool.definitions': 'tools',
  'llm.presence_penalty': 'presence_penalty',
  'llm.frequency_penalty': 'frequency_penalty',
  'llm.request.functions': 'functions',
  tools: 'tools',
  tool_arguments: 'tool_arguments',
});

named(
  'inputTokens',
  'gen_ai.usage.input_tokens',
  'gen_ai.usage.prompt_tokens',
  'llm.token_count.prompt',
  'llm.usage.prompt_tokens',
  'ai.usage.inputTokens',
  'ai.usage.promptTokens',
);
named(
  'outputTokens',
  'gen_ai.usage.output_tokens',
  'gen_ai.usage.completion_tokens',
  'llm.token_count.completion',
  'llm.usage.completion_tokens',
  'ai.usage.outputTokens',
  'ai.usage.completionTokens',
);
named(
  'totalTokens',
  'gen_ai.usage.total_tokens',
  'llm.token_count.total',
  'llm.usage.total_tokens',
  'ai.usage.totalTokens',
);
named(
  'cacheReadTokens',
  'gen_ai.usage.cache_read.input_tokens',
  'gen_ai.usage.cache_read_input_tokens',
  'llm.token_count.prompt_details.cache_read',
  'ai.usage.cachedInputTokens',
);
named(
  'cacheCreationTokens',
  'gen_ai.usage.cache_creation.input_tokens',
  'gen_ai.usage.cache_creation_input_tokens',
  'llm.token_count.prompt_details.cache_write',
);
named(
  'reasoningTokens',
  'gen_ai.usage.details.reasoning_tokens',
  'gen_ai.usage.reasoning_tokens',
  'gen_ai.usage.reasoning.output_tokens',
  'llm.token_count.completion_details.reasoning',
  'ai.usage.reasoningTokens',
);
named('inputAudioTokens', 'llm.token_count.prompt_details.audio');
named('outputAudioTokens', 'llm.token_count.completion_details.audio');
named('inputDetails', 'gen_ai.usage.input_token_details');
named('outputDetails', 'gen_ai.usage.output_token_details');
named('inputCost', 'llm.cost.prompt');
named('outputCost', 'llm.cost.completion');
named('totalCost', 'llm.cost.total', 'gen_ai.usage.cost');

/** Families of names by prefix. A name belongs to an indexed family only if a digit follows the prefix. */
const families: ReadonlyArray<{ prefix: string; role: RoleName; indexed: boolean }> = [
  { prefix: 'langsmith.metadata.', role: 'metadataField', indexed: false },
  { prefix: 'traceloop.association.properties.', role: 'metadataField', indexed: false },
  { prefix: 'ai.telemetry.metadata.', role: 'metadataField', indexed: false },
  { prefix: 'gen_ai.prompt.', role: 'promptPart', indexed: true },
  { prefix: 'gen_ai.completion.', role: 'completionPart', indexed: true },
  { prefix: 'llm.input_messages.', role: 'inputMessagePart', indexed: true },
  { prefix: 'llm.output_messages.', role: 'outputMessagePart', indexed: true },
  { prefix: 'retrieval.documents.', role: 'documentPart', indexed: true },
  { prefix: 'embedding.embeddings.', role: 'embeddingPart', indexed: true },
];
const familyRoles = families.map(({ prefix, role }): AttributeRole => ({ role, prefixBytes: prefix.length }));

function findRole(name: string): AttributeRole {
  const known = exact.get(name);
  if (known !== undefined) return known;
  for (let index = 0; index < families.length; index++) {
    const { prefix, indexed } = families[index]!;
    if (name.length <= prefix.length || !name.startsWith(prefix)) continue;
    if (indexed && !isDigit(name.charCodeAt(prefix.length))) continue;
    return familyRoles[index]!;
  }
  return plain;
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39;
}

/** The name of an attribute and its role. */
export interface AttributeName {
  /** Name in Latin-1. This is exact for every known name, and two names are equal only if their bytes are equal. */
  readonly text: string;
  readonly role: AttributeRole;
}

const slots = 4096;
const maxCachedBytes = 64;
/**
 * Cache of recent names by hash. Spans repeat a few dozen names, and a name with the same slot only replaces another in
 * the cache.
 */
const recent: Array<AttributeName | undefined> = new Array(slots).fill(undefined);

/** Returns the name in `source[start, end)`; does not allocate a string if the name is cached. */
export function attributeName(source: Buffer, start: number, end: number): AttributeName {
  const length = end - start;
  if (length > maxCachedBytes) return internName(source, start, end);
  let hash = length;
  for (let index = start; index < end; index++) hash = (Math.imul(hash, 31) + source[index]!) | 0;
  const slot = (hash ^ (hash >>> 15)) & (slots - 1);
  const known = recent[slot];
  if (known !== undefined && isSame(known.text, source, start, length)) return known;
  const name = internName(source, start, end);
  recent[slot] = name;
  return name;
}

function internName(source: Buffer, start: number, end: number): AttributeName {
  const text = source.toString('latin1', start, end);
  return { text, role: findRole(text) };
}

function isSame(text: string, source: Buffer, start: number, length: number): boolean {
  if (text.length !== length) return false;
  for (let index = 0; index < length; index++) if (text.charCodeAt(index) !== source[start + index]) return false;
  return true;
}
