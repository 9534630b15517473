import type { Assistant } from '../../../pipelines/agents/assistants/assistant.ts';

export type NamedAssistant = Pick<Assistant, 'assistant_id' | 'name'>;

const maxNameLength = 64;

/**
 * Maps assistants by tool name: letters, digits, `_` and `-`, at most 64 characters. If several have the same name, the
 * first keeps it; the others get the end of their id as a suffix.
 */
export function toolNames<Named extends NamedAssistant>(assistants: readonly Named[]): ReadonlyMap<string, Named> {
  const byName = new Map<string, Named>();
  for (const assistant of assistants) {
    const { name, assistant_id: id } = assistant;
    const legal = name.replace(/[^\w-]/g, '_').slice(0, maxNameLength) || 'assistant';
    const end = `-${id.slice(-12)}`;
    const names = [legal, `${legal.slice(0, maxNameLength - end.length)}${end}`, id];
    byName.set(names.find((candidate) => !byName.has(candidate)) ?? id, assistant);
  }
  return byName;
}
