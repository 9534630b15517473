/** Minimum time between two checks of a server that did not respond. */
const checkIntervalMs = 5_000;

interface Failure {
  readonly checkedAtMs: number;
  readonly isBeingChecked: boolean;
}

/**
 * Chooses servers in round-robin order. A server that did not respond comes last until it passes a check, so that no
 * further statement waits for it.
 */
export class ServerChoice<Server> {
  readonly #servers: readonly Server[];
  readonly #check: (server: Server) => Promise<unknown>;
  readonly #nowMs: () => number;
  readonly #failures = new Map<Server, Failure>();
  readonly #turns = new WeakMap<readonly Server[], number>();

  /**
   * @param check rejects if the server does not respond.
   * @param nowMs a monotonic clock.
   */
  constructor(
    servers: readonly Server[],
    check: (server: Server) => Promise<unknown>,
    nowMs = () => performance.now(),
  ) {
    this.#servers = servers;
    this.#check = check;
    this.#nowMs = nowMs;
  }

  /** Whether a server did not respond and has not passed a check since. */
  get hasFailures(): boolean {
    return this.#failures.size > 0;
  }

  /**
   * Returns servers in the order in which they should be tried. Starts the checks that are due.
   *
   * @param among Each list has its own turns.
   */
  order(among = this.#servers): readonly Server[] {
    for (const [server, { checkedAtMs, isBeingChecked }] of this.#failures) {
      if (!isBeingChecked && this.#nowMs() - checkedAtMs >= checkIntervalMs) this.#startCheck(server);
    }
    if (among.length === 1) return among;
    const turn = this.#turns.get(among) ?? 0;
    this.#turns.set(among, turn + 1);
    const startIndex = turn % among.length;
    const rotatedServers = [...among.slice(startIndex), ...among.slice(0, startIndex)];
    const hasFailed = (server: Server) => this.#failures.has(server);
    return [...rotatedServers.filter((server) => !hasFailed(server)), ...rotatedServers.filter(hasFailed)];
  }

  /** Records that the server did not respond to a statement. */
  recordFailure(server: Server): void {
    if (!this.#failures.get(server)?.isBeingChecked) this.#setFailure(server, false);
  }

  #startCheck(server: Server): void {
    this.#setFailure(server, true);
    this.#check(server).then(
      () => this.#failures.delete(server),
      () => this.#setFailure(server, false),
    );
  }

  #setFailure(server: Server, isBeingChecked: boolean): void {
    this.#failures.set(server, { checkedAtMs: this.#nowMs(), isBeingChecked });
  }
}
