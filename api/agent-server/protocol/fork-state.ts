import { Type } from 'typebox';
import { readThread } from '../../../pipelines/agents/threads/read-thread.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { Closed, JsonValue } from '../agent-schema.ts';
import { GraphConfigBody } from '../assistants/assistant-schema.ts';
import { type CommandScene, makeRun, paramsReader, resolveThreadAssistant } from './run-commands.ts';

const fork = paramsReader(
  Closed({
    checkpoint_id: Type.String({ minLength: 1, maxLength: 1_000 }),
    input: Type.Optional(JsonValue()),
    config: optional(GraphConfigBody),
    metadata: optional(JsonObject()),
  }),
);

/**
 * `state.fork`: starts a run that continues from a checkpoint of this thread; without input it continues where the
 * checkpoint stopped. Source: `@langchain/protocol` 0.0.13, StateForkParams.
 */
export async function forkState(scene: CommandScene, params: unknown): Promise<object> {
  const { checkpoint_id, input = null, config, metadata } = fork(params);
  const { database, deploymentId } = scene.agents;
  const assistant_id = resolveThreadAssistant(scene, await readThread(database, deploymentId, scene.threadId));
  const run_id = await makeRun(scene, { assistant_id, input, checkpoint_id, config, metadata });
  return { run_id, thread_id: scene.threadId };
}
