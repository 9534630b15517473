import type { FastifyReply } from 'fastify';
import { getTenantContext } from '../../infra/fairness/tenant-context.ts';
import type { BodyBudget, BodyShare } from '../../pipelines/ingest/body/body-budget.ts';

/**
 * Memory of the large pages that one request reads, until its response is complete. While the client receives the
 * response, only the text that is sent counts, and the connection is closed if another organisation needs the memory.
 */
export class ResponseMemory {
  readonly #budget: Pick<BodyBudget, 'open'>;
  readonly #reply: FastifyReply;
  #share: BodyShare | undefined;
  #isClosed = false;

  constructor(budget: Pick<BodyBudget, 'open'>, reply: FastifyReply) {
    this.#budget = budget;
    this.#reply = reply;
  }

  /**
   * Reserves memory for a page on behalf of the current organisation. Does nothing if the response is complete.
   *
   * @throws OVERLOADED
   */
  reserve(heapBytes: number, bufferBytes?: number): void {
    if (this.#isClosed) return;
    if (this.#share === undefined) {
      this.#share = this.#budget.open(getTenantContext()?.organizationId ?? '', () => this.#reply.raw.destroy());
      this.#share.waitsForClient = false;
    }
    this.#share.takePage(heapBytes, bufferBytes);
  }

  /** Releases the memory of the pages except the text that is sent. Of a string, the socket has an encoded copy. */
  keepOnly(payload: unknown): void {
    if (this.#share === undefined || (typeof payload !== 'string' && !Buffer.isBuffer(payload))) return;
    const sentBytes = typeof payload === 'string' ? 2 * payload.length : payload.length;
    this.#share.release(Math.max(0, this.#share.bytes - sentBytes));
    this.#share.waitsForClient = true;
  }

  close(): void {
    this.#isClosed = true;
    this.#share?.close();
  }
}
