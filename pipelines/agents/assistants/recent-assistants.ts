import type { Assistant } from './assistant.ts';
import { assistantIdOf } from './system-assistant.ts';

const maxAssistants = 200;
const maxCharacters = 16 * 1024;

/**
 * Cache of assistants as last read. Entries can be stale: the user of an entry must check that its `updated_at` is
 * still current, as the statement that creates a run does.
 */
export class RecentAssistants {
  readonly #assistants = new Map<string, Assistant>();

  get(deploymentId: string, idOrGraphId: string): Assistant | undefined {
    return this.#assistants.get(cacheKey(deploymentId, idOrGraphId));
  }

  /** Caches the assistant, unless it is large. Evicts the entry that was cached longest ago if the cache is full. */
  record(deploymentId: string, assistant: Assistant): void {
    const key = cacheKey(deploymentId, assistant.assistant_id);
    this.#assistants.delete(key);
    if (JSON.stringify(assistant).length > maxCharacters) return;
    this.#assistants.set(key, assistant);
    for (const oldest of this.#assistants.keys()) {
      if (this.#assistants.size <= maxAssistants) return;
      this.#assistants.delete(oldest);
    }
  }
}

function cacheKey(deploymentId: string, idOrGraphId: string): string {
  return `${deploymentId} ${assistantIdOf(idOrGraphId)}`;
}
