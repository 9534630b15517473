import { Command, Send } from '@langchain/langgraph';
import type { CheckpointChoice, GraphConfig, RunCommand } from '../runs/run.ts';

/** The config of a run, an assistant or a question, as LangChain takes it. */
export function libraryConfig(
  config: GraphConfig,
  added: { readonly threadId?: string; readonly checkpoint?: CheckpointChoice; readonly configurable?: object },
): Record<string, unknown> & { configurable: Record<string, unknown> } {
  const { recursion_limit, configurable, tags, ...rest } = config;
  const { checkpoint_id, checkpoint_ns, checkpoint_map } = added.checkpoint ?? {};
  return {
    ...rest,
    ...(tags !== undefined && { tags: [...tags] }),
    ...(recursion_limit !== undefined && { recursionLimit: recursion_limit }),
    configurable: {
      ...withoutMachinery(configurable),
      ...added.configurable,
      ...(added.threadId !== undefined && { thread_id: added.threadId }),
      ...(checkpoint_id !== undefined && { checkpoint_id }),
      ...(checkpoint_ns !== undefined && { checkpoint_ns }),
      ...(checkpoint_map !== undefined && { checkpoint_map }),
    },
  };
}

/** Graph code that hands its own config on sends names under which the library keeps what no text can hold. */
function withoutMachinery(configurable: object = {}): object {
  return Object.fromEntries(Object.entries(configurable).filter(([name]) => !name.startsWith('__pregel_')));
}

/** A command of a request; a `goto` of {node, input} sends that input to the node. The library itself writes {node, args, timeout}. */
export function libraryCommand({ update, resume, goto }: RunCommand): Command {
  return new Command({
    ...(update !== undefined && update !== null && { update: update as Record<string, unknown> }),
    ...(resume !== undefined && { resume }),
    ...(goto !== undefined && goto !== null && { goto: (Array.isArray(goto) ? goto : [goto]).map(destination) }),
  });
}

function destination(to: unknown): string | Send {
  if (typeof to !== 'object' || to === null || !('node' in to)) return String(to);
  const {
    node,
    input,
    args = input,
    timeout,
  } = to as { node: unknown; input?: unknown; args?: unknown; timeout?: object };
  return new Send(String(node), args, { ...(timeout && { timeout }) });
}
