import { type RunType, runTypes } from '../run-event/run-event.ts';
import type { RoleName } from './attribute-roles.ts';
import { readText } from './scalars.ts';
import type { SpanContext } from './span-context.ts';

const ownTypes = Object.fromEntries(runTypes.map((type) => [type, type])) as Record<string, RunType>;

/** Attributes that decide the run type, most specific first, each with the run types for its values (in lower case). */
const typeSources: ReadonlyArray<{ role: RoleName; types: ReadonlyMap<string, RunType>; defaultType?: RunType }> = [
  { role: 'runType', types: toMap(ownTypes) },
  {
    role: 'inferenceKind',
    types: toMap({ ...ownTypes, agent: 'chain', guardrail: 'chain', evaluator: 'chain', reranker: 'retriever' }),
  },
  { role: 'traceloopKind', types: toMap({ ...ownTypes, workflow: 'chain', task: 'chain', agent: 'chain' }) },
  { role: 'requestType', types: toMap({ embedding: 'embedding', rerank: 'retriever' }), defaultType: 'llm' },
  {
    role: 'operation',
    types: toMap({
      ...ownTypes,
      chat: 'llm',
      completion: 'llm',
      text_completion: 'llm',
      generate_content: 'llm',
      embeddings: 'embedding',
      retrieval: 'retriever',
      execute_tool: 'tool',
      invoke_agent: 'chain',
      create_agent: 'chain',
      invoke_workflow: 'chain',
    }),
  },
  {
    role: 'sdkOperation',
    types: toMap({
      'ai.generatetext.dogenerate': 'llm',
      'ai.streamtext.dostream': 'llm',
      'ai.generateobject.dogenerate': 'llm',
      'ai.streamobject.dostream': 'llm',
      'ai.embed.doembed': 'embedding',
      'ai.embedmany.doembed': 'embedding',
      'ai.toolcall': 'tool',
      'ai.generatetext': 'chain',
      'ai.streamtext': 'chain',
      'ai.generateobject': 'chain',
      'ai.streamobject': 'chain',
    }),
  },
];

/** Attributes whose presence alone decides the run type, if no attribute above does. */
const typeHints: ReadonlyArray<readonly [RoleName, RunType]> = [
  ['genAiToolName', 'tool'],
  ['promptVariables', 'prompt'],
  ['documentPart', 'retriever'],
  ['embeddingModelName', 'embedding'],
  ['embeddingPart', 'embedding'],
  ['requestModel', 'llm'],
  ['modelName', 'llm'],
  ['promptPart', 'llm'],
];

/** The run type of a span; `chain` by default. */
export function deriveRunType(context: SpanContext): RunType {
  const { span } = context;
  for (const { role, types, defaultType } of typeSources) {
    const index = span.find(role);
    if (index < 0) continue;
    const text = readText(context, index);
    const type = text === undefined ? undefined : (types.get(text.toLowerCase()) ?? defaultType);
    if (type === undefined) continue;
    // The other attributes carry more detail than the run type, so they stay in the metadata.
    if (role === 'runType') span.take(index);
    return type;
  }
  for (const [role, type] of typeHints) if (span.find(role) >= 0) return type;
  return 'chain';
}

function toMap(types: Record<string, RunType>): ReadonlyMap<string, RunType> {
  return new Map(Object.entries(types));
}
