import { Type } from 'typebox';
import { readThreadHistory } from '../../../pipelines/agents/threads/read-thread-history.ts';
import type { ThreadState } from '../../../pipelines/agents/threads/thread.ts';
import { optional } from '../../server/formats.ts';
import { Closed, Limit } from '../agent-schema.ts';
import { type CommandScene, paramsReader } from './run-commands.ts';

const listParams = paramsReader(
  Closed({
    namespace: optional(Type.Array(Type.String({ maxLength: 1_000 }), { maxItems: 100 })),
    limit: Limit(),
    before: optional(Type.String({ minLength: 1, maxLength: 1_000 })),
  }),
);

const defaultLimit = 10;

/**
 * `state.listCheckpoints`: returns the checkpoints of the thread or of a subgraph, newest first. `before` is the id of
 * the last checkpoint of the previous page. Source: `@langchain/protocol` 0.0.13, ListCheckpointsResult.
 */
export async function listCheckpoints({ agents, threadId }: CommandScene, params: unknown): Promise<object> {
  const { namespace, limit, before } = listParams(params);
  const history = await readThreadHistory(agents, threadId, {
    limit: limit ?? defaultLimit,
    ...(before && { before: { checkpoint_id: before } }),
    ...(namespace?.length && { checkpoint: { checkpoint_ns: namespace.join('|') } }),
  });
  const checkpoints = (JSON.parse(history) as ThreadState[]).map(({ checkpoint, created_at, metadata }) => ({
    id: checkpoint?.checkpoint_id,
    timestamp: created_at,
    step: metadata.step,
    metadata,
  }));
  return { checkpoints };
}
