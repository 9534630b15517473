import type { EventFilter } from '../../../pipelines/agents/protocol/protocol-event.ts';
import { replayPlace } from '../../../pipelines/agents/protocol/replay-place.ts';
import type { StreamReader } from '../../../pipelines/agents/streams/stream-ports.ts';
import type { Agents } from '../agent-services.ts';

interface Wanted {
  readonly channels: readonly string[];
  readonly namespaces?: readonly (readonly string[])[] | null;
  readonly depth?: number | null;
  readonly since?: number | null;
}

/** A reader of what a thread streams, which need not be there yet, and what to tell of it. */
export async function openEvents(
  { hub, database, deploymentId }: Pick<Agents, 'hub' | 'database' | 'deploymentId'>,
  threadId: string,
  { channels, namespaces, depth, since }: Wanted,
): Promise<{ readonly reader: StreamReader; readonly filter: EventFilter }> {
  const from = since == null ? await replayPlace(database, deploymentId, threadId) : { threadSeq: since };
  const reader = await hub.readThread({ deploymentId, threadId }, from);
  return { reader, filter: { channels, namespaces: namespaces ?? undefined, depth: depth ?? undefined } };
}
