/** Formats a host and a port as in a URL, with IPv6 addresses in brackets. */
export function formatHost(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}
