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

/**
 * Makes an agent server that a host of deployments has started follow this host. When the host asks for it, the agent
 * server retires and then stops as after SIGTERM. When the host has ended, it stops, so that it never outlives the host.
 *
 * @param retire see `StartedAgents.retire`
 */
export function followHost(retire: () => Promise<void>): void {
  if (process.send === undefined) return;
  const stop = () => process.kill(process.pid, 'SIGTERM');
  process.once('disconnect', stop);
  process.on('message', (message) => {
    if (message !== retireMessage) return;
    process.off('disconnect', stop);
    void retire().finally(stop);
  });
}
