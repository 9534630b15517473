import { finished } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { isRunlakeError, type RunlakeError } from '../../infra/errors/runlake-error.ts';
import { runWithoutTenant } from '../../infra/fairness/tenant-context.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Access of an open connection after its first authentication. Undefined for public operations. */
    access: ActiveAccess | undefined;
  }
}

const checkIntervalMs = 2_000;

/** Access of one request, from its authentication until its response is finished. */
export interface ActiveAccess {
  /**
   * Authenticates the caller again and counts one request. Called for each further command on the same connection.
   *
   * @throws RATE_LIMITED. If the caller no longer has access, throws the same errors as the first authentication.
   */
  renew(): Promise<Caller>;
  /**
   * Aborted within seconds after the caller loses access, with the error as the reason. The caller loses access if the
   * key was revoked or has expired, the member was removed, or the workspace was deleted. Streaming responses end when
   * this signal is aborted. With custom authentication, only the deletion of the workspace aborts it.
   */
  readonly ended: AbortSignal;
}

/**
 * Authenticates the callers of long responses again every two seconds.
 *
 * Invariant: if `ended` of a request was read, the request is checked until its response is finished. Requests with the
 * same key share one look-up, because the authenticator caches keys. If a check fails for a reason other than lost
 * access (for example, because Postgres is unavailable), nothing changes; the next check decides.
 */
export class AccessWatch {
  readonly #watched = new Map<WatchedAccess, AbortController>();
  #timer: NodeJS.Timeout | undefined;
  #checking = false;

  /**
   * Returns the access of a request. `recheck` is called periodically while the response is sent; `renew` is called for
   * each further command.
   */
  open(
    request: FastifyRequest,
    reply: FastifyReply,
    renew: () => Promise<Caller>,
    recheck: () => Promise<unknown> = renew,
  ): ActiveAccess {
    return new WatchedAccess(this, request, reply, renew, recheck);
  }

  watch(access: WatchedAccess): AbortSignal {
    const controller = new AbortController();
    this.#watched.set(access, controller);
    finished(access.reply.raw, () => this.#forget(access));
    this.#timer ??= setInterval(() => void runWithoutTenant(() => this.#check()), checkIntervalMs).unref();
    return controller.signal;
  }

  close(): void {
    clearInterval(this.#timer);
    this.#watched.clear();
  }

  async #check(): Promise<void> {
    if (this.#checking) return;
    this.#checking = true;
    await Promise.all([...this.#watched].map(([access, controller]) => this.#checkOne(access, controller)));
    this.#checking = false;
  }

  async #checkOne(access: WatchedAccess, controller: AbortController): Promise<void> {
    try {
      await access.recheck();
    } catch (error) {
      if (!isAccessError(error)) return;
      const { log, id: requestId } = access.request;
      log.info({ requestId, code: error.code }, 'access revoked, closing the stream');
      this.#forget(access);
      controller.abort(error);
    }
  }

  #forget(access: WatchedAccess): void {
    this.#watched.delete(access);
    if (this.#watched.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}

class WatchedAccess implements ActiveAccess {
  readonly #watch: AccessWatch;
  #ended: AbortSignal | undefined;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly renew: () => Promise<Caller>;
  readonly recheck: () => Promise<unknown>;

  constructor(
    watch: AccessWatch,
    request: FastifyRequest,
    reply: FastifyReply,
    renew: () => Promise<Caller>,
    recheck: () => Promise<unknown>,
  ) {
    this.#watch = watch;
    this.request = request;
    this.reply = reply;
    this.renew = renew;
    this.recheck = recheck;
  }

  get ended(): AbortSignal {
    this.#ended ??= this.#watch.watch(this);
    return this.#ended;
  }
}

/** Returns true if the error means that the caller has no access. Returns false if the access could not be checked. */
export function isAccessError(error: unknown): error is RunlakeError {
  return isRunlakeError(error) && (error.status === 401 || error.status === 403);
}
