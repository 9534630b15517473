import { fault } from '../../../infra/errors/runlake-error.ts';

/** A store that hangs holds its check up for seconds, with a connection and a client of its own. */
const mostAtOnce = 16;

/** How many checks of destinations go on in this process, by workspace: none of them can take the room of another. */
export class CheckRoom {
  readonly #underWay = new Map<string, number>();

  /** @throws OVERLOADED where the workspace has as many as it may; what `check` throws. */
  async during(workspaceId: string, check: () => Promise<void>): Promise<void> {
    const underWay = this.#underWay.get(workspaceId) ?? 0;
    if (underWay >= mostAtOnce) {
      throw fault('OVERLOADED', { what: 'checks of destinations of this workspace' }, { retryAfterSeconds: 5 });
    }
    this.#underWay.set(workspaceId, underWay + 1);
    try {
      await check();
    } finally {
      const left = (this.#underWay.get(workspaceId) as number) - 1;
      if (left > 0) this.#underWay.set(workspaceId, left);
      else this.#underWay.delete(workspaceId);
    }
  }
}
