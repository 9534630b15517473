/**
 * The part of a replica in its own process: it follows the host of deployments that has started it (`child-driver.ts`).
 *
 *   1. From its start on, it stops as after SIGTERM when the host has ended, so that it never outlives the host.
 *   2. If it cannot start, it reports the error.
 *   3. When the host asks for it, it retires, and then stops as after SIGTERM.
 */

/** Message of a host to the agent server of a replica: drain and exit. */
export const retireMessage = 'retire';

/** Report of an agent server that cannot start, to its host. */
export interface ReportedError {
  readonly code: string;
  readonly message: string;
}

/** Reports the error that ends this process to the host that started it, if there is one. */
export function reportToHost({ code, message }: ReportedError): void {
  process.send?.({ code, message });
}

const stop = () => process.kill(process.pid, 'SIGTERM');

/** Stops this process when its host ends, also if the host has ended already. */
export function stopWithHost(): void {
  process.once('disconnect', stop);
  // The channel to the host must not keep the process running after everything else has ended.
  process.channel?.unref();
  if (!process.connected) stop();
}

/**
 * Makes an agent server retire when its host asks for it.
 *
 * @param retire see `StartedAgents.retire`
 */
export function retireForHost(retire: () => Promise<void>): void {
  process.on('message', (message) => {
    if (message !== retireMessage) return;
    process.off('disconnect', stop);
    void retire().finally(stop);
  });
}
