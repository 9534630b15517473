import type { EventFilter } from '../../../pipelines/agents/protocol/protocol-event.ts';
import { replayPosition } from '../../../pipelines/agents/protocol/replay-position.ts';
import type { StreamReader } from '../../../pipelines/agents/streams/stream-types.ts';
import type { Agents } from '../agent-services.ts';

interface Wanted {
  readonly channels: readonly string[];
  readonly namespaces?: readonly (readonly string[])[] | null;
  readonly depth?: number | null;
  readonly since?: number | null;
}

/** Opens a reader of the events of a thread, which need not exist yet, and returns it with the filter to apply. */
export async function openEvents(
  { hub, database, deploymentId }: Pick<Agents, 'hub' | 'database' | 'deploymentId'>,
  threadId: string,
  { channels, namespaces, depth, since }: Wanted,
): Promise<{ readonly reader: StreamReader; readonly filter: EventFilter }> {
  const from = since == null ? await replayPosition(database, deploymentId, threadId) : { threadSeq: since };
  const reader = await hub.readThread({ deploymentId, threadId }, from);
  return { reader, filter: { channels, namespaces: namespaces ?? undefined, depth: depth ?? undefined } };
}
