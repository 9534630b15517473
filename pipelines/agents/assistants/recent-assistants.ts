import type { Assistant } from './assistant.ts';
import { assistantIdOf } from './system-assistant.ts';

const mostAssistants = 200;
const mostCharacters = 16 * 1024;

/**
 * Assistants as they were read last. Whoever takes one from here has to see that it still is what it was, by its `updated_at`: the
 * statement that makes a run does.
 */
export class RecentAssistants {
  readonly #assistants = new Map<string, Assistant>();

  get(deploymentId: string, idOrGraphId: string): Assistant | undefined {
    return this.#assistants.get(keyOf(deploymentId, idOrGraphId));
  }

  /** Not where it is large. */
  note(deploymentId: string, assistant: Assistant): void {
    const key = keyOf(deploymentId, assistant.assistant_id);
    this.#assistants.delete(key);
    if (JSON.stringify(assistant).length > mostCharacters) return;
    this.#assistants.set(key, assistant);
    for (const oldest of this.#assistants.keys()) {
      if (this.#assistants.size <= mostAssistants) return;
      this.#assistants.delete(oldest);
    }
  }
}

function keyOf(deploymentId: string, idOrGraphId: string): string {
  return `${deploymentId} ${assistantIdOf(idOrGraphId)}`;
}
