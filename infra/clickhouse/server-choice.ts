/** After a server did not respond, other servers are used for this time. */
const avoidMs = 5_000;

/** Chooses servers in turn, except those that did not respond in the last seconds. */
export class ServerChoice<Server> {
  readonly #servers: readonly Server[];
  readonly #failedAtMs = new Map<Server, number>();
  readonly #nowMs: () => number;
  #turn = 0;

  /** @param nowMs a monotonic clock. */
  constructor(servers: readonly Server[], nowMs = () => performance.now()) {
    this.#servers = servers;
    this.#nowMs = nowMs;
  }

  /** Returns all servers in the order in which to try them. */
  order(): readonly Server[] {
    if (this.#servers.length === 1) return this.#servers;
    const turn = this.#turn++ % this.#servers.length;
    const inTurn = [...this.#servers.slice(turn), ...this.#servers.slice(0, turn)];
    const isAvoided = (server: Server) => this.#nowMs() - (this.#failedAtMs.get(server) ?? -Infinity) < avoidMs;
    return [...inTurn.filter((server) => !isAvoided(server)), ...inTurn.filter(isAvoided)];
  }

  recordFailure(server: Server): void {
    this.#failedAtMs.set(server, this.#nowMs());
  }
}
