import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { GraphConfig } from '../../../pipelines/agents/runs/run.ts';
import { JsonObject, nullable, optional, Text, Timestamp, Uuid } from '../../server/formats.ts';
import { JsonValue } from '../agent-schema.ts';
import type { Agents } from '../agent-services.ts';

const versionFields = {
  assistant_id: Uuid(),
  graph_id: Type.String(),
  name: Type.String(),
  description: nullable(Type.String()),
  config: JsonObject({ description: 'RunnableConfig: tags, metadata, recursion_limit, configurable.' }),
  context: JsonValue(),
  metadata: JsonObject(),
  version: Type.Integer(),
  created_at: Timestamp(),
};

export const AssistantVersion = Type.Object(versionFields);
export const Assistant = Type.Object({ ...versionFields, updated_at: Timestamp() });
/** With `select`, only the selected fields. */
export const SelectedAssistant = Type.Partial(Assistant);
export const assistantFields = [...Object.keys(versionFields), 'updated_at'];

/**
 * The configuration of an assistant or a run: the fields that the SDKs send. The server sets the other options of the
 * library.
 */
export const GraphConfigBody = Type.Unsafe<GraphConfig>(
  Type.Object(
    {
      tags: Type.Optional(Type.Array(Type.String())),
      metadata: Type.Optional(JsonObject()),
      recursion_limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 2_147_483_647 })),
      configurable: Type.Optional(JsonObject()),
    },
    { additionalProperties: false },
  ),
);

export const changeable = {
  config: optional(GraphConfigBody),
  context: Type.Optional(JsonValue({ description: 'Context of each run of the assistant.' })),
  metadata: optional(JsonObject()),
  name: optional(Text({ maxLength: 10_000 })),
  description: optional(Text({ maxLength: 100_000 })),
};

/** @throws GRAPH_NOT_FOUND, which lists the existing graphs. */
export function requireGraph({ graphs }: Pick<Agents, 'graphs'>, graphId: string): void {
  if (Object.hasOwn(graphs, graphId)) return;
  throw runlakeError('GRAPH_NOT_FOUND', { graph: graphId, graphs: Object.keys(graphs).sort().join(', ') });
}
