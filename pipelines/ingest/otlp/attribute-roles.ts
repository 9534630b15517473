/**
 * Roles of the attribute names that have a meaning for runs. All other attributes become metadata. Sources: LangSmith
 * "Trace with OpenTelemetry" (attribute tables) and its SDKs' exporters; OpenTelemetry GenAI semantic conventions, old
 * (`gen_ai.prompt.N.*`) and new (`gen_ai.input.messages`); OpenInference; Traceloop; Vercel AI SDK; Pydantic AI and Logfire;
 * Google ADK; Strands; LiteLLM.
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
  | 'attachments'
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
  | 'sdkValues'
  | 'otherInput'
  | 'completion'
  | 'outputMessages'
  | 'completionPart'
  | 'outputMessagePart'
  | 'entityOutput'
  | 'outputValue'
  | 'outputMimeType'
  | 'toolOutput'
  | 'sdkOutput'
  | 'sdkReasoning'
  | 'sdkToolCalls'
  | 'sdkEmbeddings'
  | 'otherOutput'
  | 'listedEvents'
  | 'documents'
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
  | 'sdkModel'
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
  | 'inputImageTokens'
  | 'outputAudioTokens'
  | 'outputImageTokens'
  | 'inputDetails'
  | 'outputDetails'
  | 'inputCost'
  | 'outputCost'
  | 'totalCost'
  | 'firstChunkSeconds'
  | 'errorType';

export interface AttributeRole {
  readonly role: RoleName;
  /** The key that replaces the name of the attribute, if the attribute is renamed. */
  readonly key?: string;
  /** Length of the prefix of the family, if the remainder of the name is a key or a path. */
  readonly prefixBytes?: number;
}

const noRole: AttributeRole = { role: 'none' };

const exactRoles = new Map<string, AttributeRole>();
const addExactNames = (role: RoleName, ...names: string[]) => {
  for (const name of names) exactRoles.set(name, { role });
};
const addRenamedAttributes = (role: RoleName, keys: Record<string, string>) => {
  for (const [name, key] of Object.entries(keys)) exactRoles.set(name, { role, key });
};

addExactNames('runId', 'langsmith.span.id');
addExactNames('traceId', 'langsmith.trace.id');
addExactNames('parentId', 'langsmith.span.parent_id');
addExactNames('dottedOrder', 'langsmith.span.dotted_order');
addExactNames('runType', 'langsmith.span.kind');
addExactNames('name', 'langsmith.trace.name');
addExactNames('projectId', 'langsmith.trace.session_id');
addExactNames('projectName', 'langsmith.trace.session_name');
addExactNames('tags', 'langsmith.span.tags', 'tag.tags');
addExactNames('exampleId', 'langsmith.reference_example_id');
addExactNames('usage', 'langsmith.usage_metadata');
addExactNames('runtime', 'langsmith.span.runtime');
addExactNames('traceable', 'langsmith.traceable');
addExactNames('isRoot', 'langsmith.is_root', 'langsmith.root_span');
addExactNames('internal', 'langsmith.traceable_parent_otel_span_id');
addExactNames('attachments', 'langsmith.attachments');
addExactNames('serializedName', 'gen_ai.serialized.name');
addExactNames('serializedSignature', 'gen_ai.serialized.signature');
addExactNames('serializedDoc', 'gen_ai.serialized.doc');

addExactNames('prompt', 'gen_ai.prompt');
addExactNames('inputMessages', 'gen_ai.input.messages', 'llm.input_messages');
addExactNames('systemInstructions', 'gen_ai.system_instructions');
addExactNames('entityInput', 'traceloop.entity.input');
addExactNames('inputValue', 'input.value');
addExactNames('inputMimeType', 'input.mime_type');
addExactNames('toolInput', 'gen_ai.tool.call.arguments', 'ai.toolCall.input', 'ai.toolCall.args');
addExactNames('toolInput', 'tool_arguments', 'gcp.vertex.agent.tool_call_args');
addExactNames('sdkPrompt', 'ai.prompt.messages', 'ai.prompt');
addExactNames('sdkValues', 'ai.value', 'ai.values');
addExactNames('otherInput', 'prompt', 'request_data', 'gcp.vertex.agent.llm_request');
addExactNames('otherInput', 'gen_ai.retrieval.query.text', 'reranker.query');
addExactNames('completion', 'gen_ai.completion');
addExactNames('outputMessages', 'gen_ai.output.messages', 'llm.output_messages');
// The whole conversation of an agent; only its spans have these attributes.
addExactNames('outputMessages', 'pydantic_ai.all_messages', 'all_messages_events');
addExactNames('entityOutput', 'traceloop.entity.output');
addExactNames('outputValue', 'output.value');
addExactNames('outputMimeType', 'output.mime_type');
addExactNames('toolOutput', 'gen_ai.tool.call.result', 'ai.toolCall.output', 'ai.toolCall.result');
addExactNames('toolOutput', 'tool_response', 'gcp.vertex.agent.tool_response');
addExactNames('sdkOutput', 'ai.response.object', 'ai.response.choices', 'ai.response.text');
addExactNames('sdkReasoning', 'ai.response.reasoning');
addExactNames('sdkToolCalls', 'ai.response.toolCalls');
addExactNames('sdkEmbeddings', 'ai.embedding', 'ai.embeddings');
addExactNames('otherOutput', 'final_result', 'response_data', 'gcp.vertex.agent.llm_response');
addExactNames('listedEvents', 'events');
addExactNames('documents', 'gen_ai.retrieval.documents');
addExactNames('errorType', 'error.type');

addExactNames('inferenceKind', 'openinference.span.kind');
addExactNames('traceloopKind', 'traceloop.span.kind');
addExactNames('requestType', 'llm.request.type', 'traceloop.llm.request.type');
addExactNames('operation', 'gen_ai.operation.name');
addExactNames('sdkOperation', 'ai.operationId');
addExactNames('promptVariables', 'llm.prompt_template.variables');
addExactNames('toolName', 'tool.name');
addExactNames('entityName', 'traceloop.entity.name');
addExactNames('genAiToolName', 'gen_ai.tool.name');
addExactNames('requestModel', 'gen_ai.request.model');
addExactNames('responseModel', 'gen_ai.response.model');
addExactNames('modelName', 'llm.model_name');
addExactNames('embeddingModelName', 'embedding.model_name');
addExactNames('sdkModel', 'ai.model.id');

addExactNames('metadataObject', 'metadata');
addRenamedAttributes('renamedMetadata', {
  'gen_ai.system': 'ls_provider',
  'gen_ai.provider.name': 'ls_provider',
  'llm.system': 'ls_provider',
  'llm.provider': 'ls_provider',
  // Names that group the runs of one conversation into a thread.
  'session.id': 'session_id',
  'gen_ai.conversation.id': 'conversation_id',
});
addExactNames('parameters', 'llm.invocation_parameters', 'embedding.invocation_parameters');
addRenamedAttributes('parameter', {
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
});

addExactNames(
  'inputTokens',
  'gen_ai.usage.input_tokens',
  'gen_ai.usage.prompt_tokens',
  'llm.token_count.prompt',
  'llm.usage.prompt_tokens',
  'ai.usage.inputTokens',
  'ai.usage.promptTokens',
  'ai.usage.tokens',
);
addExactNames(
  'outputTokens',
  'gen_ai.usage.output_tokens',
  'gen_ai.usage.completion_tokens',
  'llm.token_count.completion',
  'llm.usage.completion_tokens',
  'ai.usage.outputTokens',
  'ai.usage.completionTokens',
);
addExactNames(
  'totalTokens',
  'gen_ai.usage.total_tokens',
  'llm.token_count.total',
  'llm.usage.total_tokens',
  'ai.usage.totalTokens',
);
addExactNames(
  'cacheReadTokens',
  'gen_ai.usage.cache_read.input_tokens',
  'gen_ai.usage.cache_read_input_tokens',
  'llm.token_count.prompt_details.cache_read',
  'ai.usage.cachedInputTokens',
  'ai.usage.inputTokenDetails.cacheReadTokens',
  'gen_ai.usage.details.cache_read_tokens',
  'gen_ai.usage.details.cache_read_input_tokens',
  'gen_ai.usage.details.cached_tokens',
);
addExactNames(
  'cacheCreationTokens',
  'gen_ai.usage.cache_write.input_tokens',
  'gen_ai.usage.cache_write_input_tokens',
  'gen_ai.usage.cache_creation.input_tokens',
  'gen_ai.usage.cache_creation_input_tokens',
  'llm.token_count.prompt_details.cache_write',
  'ai.usage.inputTokenDetails.cacheWriteTokens',
  'gen_ai.usage.details.cache_write_tokens',
  'gen_ai.usage.details.cache_creation_input_tokens',
);
addExactNames(
  'reasoningTokens',
  'gen_ai.usage.details.reasoning_tokens',
  'gen_ai.usage.reasoning_tokens',
  'gen_ai.usage.reasoning.output_tokens',
  'llm.usage.reasoning_tokens',
  'llm.token_count.completion_details.reasoning',
  'ai.usage.reasoningTokens',
  'ai.usage.outputTokenDetails.reasoningTokens',
);
addExactNames(
  'inputAudioTokens',
  'gen_ai.usage.audio.input_tokens',
  'llm.token_count.prompt_details.audio',
  'gen_ai.usage.details.input_audio_tokens',
);
addExactNames('inputImageTokens', 'gen_ai.usage.image.input_tokens');
addExactNames(
  'outputAudioTokens',
  'gen_ai.usage.audio.output_tokens',
  'llm.token_count.completion_details.audio',
  'gen_ai.usage.details.output_audio_tokens',
);
addExactNames('outputImageTokens', 'gen_ai.usage.image.output_tokens');
addExactNames('inputDetails', 'gen_ai.usage.input_token_details');
addExactNames('outputDetails', 'gen_ai.usage.output_token_details');
addExactNames('inputCost', 'llm.cost.prompt', 'gen_ai.usage.input_cost', 'gen_ai.cost.input_cost');
addExactNames('outputCost', 'llm.cost.completion', 'gen_ai.usage.output_cost', 'gen_ai.cost.output_cost');
addExactNames('totalCost', 'llm.cost.total', 'gen_ai.usage.cost', 'gen_ai.usage.total_cost', 'gen_ai.cost.total_cost');
addExactNames('firstChunkSeconds', 'gen_ai.response.time_to_first_chunk');

/** Families of attribute names, by prefix. A name belongs to an indexed family only if a digit follows the prefix. */
const families: ReadonlyArray<{ prefix: string; role: RoleName; indexed: boolean }> = [
  { prefix: 'langsmith.metadata.', role: 'metadataField', indexed: false },
  { prefix: 'traceloop.association.properties.', role: 'metadataField', indexed: false },
  { prefix: 'ai.telemetry.metadata.', role: 'metadataField', indexed: false },
  { prefix: 'gen_ai.prompt.', role: 'promptPart', indexed: true },
  { prefix: 'gen_ai.completion.', role: 'completionPart', indexed: true },
  { prefix: 'llm.input_messages.', role: 'inputMessagePart', indexed: true },
  { prefix: 'llm.output_messages.', role: 'outputMessagePart', indexed: true },
  { prefix: 'retrieval.documents.', role: 'documentPart', indexed: true },
  { prefix: 'reranker.output_documents.', role: 'documentPart', indexed: true },
  { prefix: 'embedding.embeddings.', role: 'embeddingPart', indexed: true },
];
const familyRoles = families.map(({ prefix, role }): AttributeRole => ({ role, prefixBytes: prefix.length }));

function findRole(name: string): AttributeRole {
  const known = exactRoles.get(name);
  if (known !== undefined) return known;
  for (let index = 0; index < families.length; index++) {
    const { prefix, indexed } = families[index]!;
    if (name.length <= prefix.length || !name.startsWith(prefix)) continue;
    if (indexed && !isDigit(name.charCodeAt(prefix.length))) continue;
    return familyRoles[index]!;
  }
  return noRole;
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39;
}

/** The name of an attribute and its role. */
export interface AttributeName {
  /**
   * The name, decoded as Latin-1. The decoded text is exact for every known name, and two names are equal only if their
   * bytes are equal.
   */
  readonly text: string;
  readonly role: AttributeRole;
}

const cacheSlots = 4096;
const maxCachedBytes = 64;
/**
 * Cache of recent names, by hash. Spans repeat the same few dozen names. If two names have the same slot, the cache
 * holds the later one.
 */
const recentNames: Array<AttributeName | undefined> = new Array(cacheSlots).fill(undefined);

/** Returns the name in `source[start, end)`; does not allocate a string if the name is cached. */
export function readAttributeName(source: Buffer, start: number, end: number): AttributeName {
  const length = end - start;
  if (length > maxCachedBytes) return internName(source, start, end);
  let hash = length;
  for (let index = start; index < end; index++) hash = (Math.imul(hash, 31) + source[index]!) | 0;
  const slot = (hash ^ (hash >>> 15)) & (cacheSlots - 1);
  const known = recentNames[slot];
  if (known !== undefined && isSame(known.text, source, start, length)) return known;
  const name = internName(source, start, end);
  recentNames[slot] = name;
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
