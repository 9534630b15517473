import { Type } from 'typebox';
import { protocolMessage } from '../../../pipelines/agents/protocol/protocol-event.ts';
import { replayPosition } from '../../../pipelines/agents/protocol/replay-position.ts';
import { readRun } from '../../../pipelines/agents/runs/read-run.ts';
import type { StreamReader } from '../../../pipelines/agents/streams/stream-types.ts';
import { readThread, type ThreadState } from '../../../pipelines/agents/threads/thread.ts';
import { readThreadHistory, readThreadState } from '../../../pipelines/agents/threads/thread-state.ts';
import { optional, Uuid } from '../../server/formats.ts';
import { Closed, Limit } from '../agent-schema.ts';
import { CommandRefused, type CommandScene, paramsReader } from './command.ts';

const stateParams = paramsReader(
  Closed({
    namespace: optional(Type.Array(Type.String({ maxLength: 1_000 }), { maxItems: 100 })),
    keys: optional(Type.Array(Type.String(), { maxItems: 1_000 })),
  }),
);

/** `state.get`: returns the state of the thread or of a subgraph. */
export async function getState({ agents, threadId }: CommandScene, params: unknown): Promise<object> {
  const { namespace, keys } = stateParams(params);
  const checkpoint = namespace?.length ? { checkpoint_ns: namespace.join('|') } : undefined;
  const text = await readThreadState(agents, threadId, { subgraphs: false, ...(checkpoint && { checkpoint }) });
  const state = JSON.parse(text) as ThreadState;
  const values = (state.values ?? {}) as Readonly<Record<string, unknown>>;
  const { checkpoint_id: id, checkpoint_ns: ns } = state.checkpoint ?? {};
  if (checkpoint && id === undefined) {
    throw new CommandRefused(
      'no_such_namespace',
      `The thread has no state in the namespace '${checkpoint.checkpoint_ns}'.`,
    );
  }
  return {
    values: keys ? Object.fromEntries(Object.entries(values).filter(([key]) => keys.includes(key))) : values,
    ...(id !== undefined && { checkpoint: { id, ...(ns && { ns }) } }),
  };
}

interface TreeNode {
  readonly namespace: readonly string[];
  status: string;
  graph_name: string;
  readonly children: TreeNode[];
}

interface Lifecycle {
  readonly params: {
    readonly namespace: readonly string[];
    readonly data: { readonly event: string; readonly graph_name: string };
  };
}

const treeParams = paramsReader(Closed({ run_id: optional(Uuid()) }));

/**
 * `agent.getTree`: returns the graph and its subgraphs with their status, from the events of the given run, otherwise
 * of the active runs, otherwise of the last run.
 */
export async function getTree({ agents, threadId }: CommandScene, params: unknown): Promise<object> {
  const { run_id: runId } = treeParams(params);
  await readThread(agents.database, agents.deploymentId, threadId);
  const reader = await openReader(agents, threadId, runId?.toLowerCase());
  const root: TreeNode = { namespace: [], status: 'started', graph_name: 'root', children: [] };
  const nodes = new Map([['', root]]);
  try {
    const finished = reader.finish();
    for await (const event of reader) {
      const message = protocolMessage(event, { channels: ['lifecycle'] });
      if (message === undefined) continue;
      const { namespace, data } = (JSON.parse(message.text) as Lifecycle).params;
      const node = nodeAt(nodes, namespace);
      node.status = data.event;
      node.graph_name = data.graph_name;
    }
    await finished;
  } finally {
    reader.close();
  }
  return { tree: root };
}

async function openReader(
  { database, deploymentId, hub }: CommandScene['agents'],
  threadId: string,
  runId: string | undefined,
): Promise<StreamReader> {
  if (runId === undefined) {
    return hub.readThread({ deploymentId, threadId }, await replayPosition(database, deploymentId, threadId));
  }
  await readRun(database, deploymentId, { threadId, runId });
  return hub.readRun({ deploymentId, threadId, runId }, 'start');
}

function nodeAt(nodes: Map<string, TreeNode>, namespace: readonly string[]): TreeNode {
  const found = nodes.get(namespace.join('|'));
  if (found !== undefined) return found;
  const created: TreeNode = { namespace, status: 'started', graph_name: namespace.at(-1) ?? 'root', children: [] };
  nodes.set(namespace.join('|'), created);
  nodeAt(nodes, namespace.slice(0, -1)).children.push(created);
  return created;
}

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
