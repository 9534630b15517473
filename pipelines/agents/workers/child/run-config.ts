import { Command, Send } from '@langchain/langgraph';
import type { CheckpointReference, GraphConfig, RunCommand } from '../../runs/run.ts';

/** Converts the config of a run, an assistant or a query to the form that LangChain expects. */
export function toLibraryConfig(
  config: GraphConfig,
  added: { readonly threadId?: string; readonly checkpoint?: CheckpointReference; readonly configurable?: object },
): Record<string, unknown> & { configurable: Record<string, unknown> } {
  const { recursion_limit, configurable, tags, ...rest } = config;
  const { checkpoint_id, checkpoint_ns, checkpoint_map } = added.checkpoint ?? {};
  return {
    ...rest,
    ...(tags !== undefined && { tags: [...tags] }),
    ...(recursion_limit !== undefined && { recursionLimit: recursion_limit }),
    configurable: {
      ...removeInternals(configurable),
      ...added.configurable,
      ...(added.threadId !== undefined && { thread_id: added.threadId }),
      ...(checkpoint_id !== undefined && { checkpoint_id }),
      ...(checkpoint_ns !== undefined && { checkpoint_ns }),
      ...(checkpoint_map !== undefined && { checkpoint_map }),
    },
  };
}

/**
 * Removes LangGraph internals, whose values cannot be serialised. A config contains them if graph code forwards the
 * config that it received.
 */
function removeInternals(configurable: object = {}): object {
  return Object.fromEntries(Object.entries(configurable).filter(([name]) => !name.startsWith('__pregel_')));
}

/**
 * Converts the command of a request. A `goto` may have the form of the API, `{node, input}`, or the form that LangGraph
 * serialises, `{node, args, timeout}`.
 */
export function toLibraryCommand({ update, resume, goto }: RunCommand): Command {
  return new Command({
    ...(update !== undefined && update !== null && { update: update as Record<string, unknown> }),
    ...(resume !== undefined && { resume }),
    ...(goto !== undefined && goto !== null && { goto: (Array.isArray(goto) ? goto : [goto]).map(toGotoTarget) }),
  });
}

function toGotoTarget(to: unknown): string | Send {
  if (typeof to !== 'object' || to === null || !('node' in to)) return String(to);
  const {
    node,
    input,
    args = input,
    timeout,
  } = to as { node: unknown; input?: unknown; args?: unknown; timeout?: object };
  return new Send(String(node), args, { ...(timeout && { timeout }) });
}
