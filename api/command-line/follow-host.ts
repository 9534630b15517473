/**
 * The part of a replica in its own process: it follows the host of deployments that has started it (`child-driver.ts`).
 *
 *   1. From its start on, it stops as after SIGTERM when the host has ended, so that it never outlives the host.
 *   2. If it cannot start, it reports the error; otherwise that it listens. Only then its host trusts what answers at its
 *      port: until then, another program can have the port, for example graph code of another deployment.
 *   3. When the host asks for it, it retires, and then stops as after SIGTERM.
 */

/** Message of a host to the agent server of a replica: drain and exit. */
export const retireMessage = 'retire';

/** Message of the agent server of a replica to its host: it listens. */
export const startedMessage = 'started';

/** Report of an agent server that cannot start, to its host. */
export interface ReportedError {
  readonly code: string;
  readonly message: string;
}

/** Reports the error that ends this process to the host that started it, if there is one. */
export function reportToHost({ code, message }: ReportedError): void {
  send({ code, message });
}

/** Reports to the host that started this process, if there is one, that it listens. */
export function reportStarted(): void {
  send(startedMessage);
}

function send(message: ReportedError | typeof startedMessage): void {
  // If the message cannot be sent, the host has ended, and this process ends too.
  process.send?.(message, undefined, undefined, () => undefined);
}

const stop = () => process.kill(process.pid, 'SIGTERM');

/** Stops this process when its host ends, also if the host has ended already. */
export function stopWithHost(): void {
  process.once('disconnect', stop);
  // The channel to the host must not keep the process running after everything else has ended.
  process.channel?.unref();
  if (!process.connected) stop();
}

/** Makes an agent server retire when its host asks for it. @param retire see `StartedAgents.retire` */
export function retireForHost(retire: () => Promise<void>): void {
  process.on('message', (message) => {
    if (message !== retireMessage) return;
    process.off('disconnect', stop);
    void retire().finally(stop);
  });
}
