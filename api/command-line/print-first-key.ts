import type { BootstrapOutcome } from '../../pipelines/tenants/bootstrap.ts';

/** Prints the URL of Runlake to standard output and, at the first start, the admin key, which is shown only once. */
export function printFirstKey(outcome: BootstrapOutcome, url: string): void {
  console.log(`Runlake answers at ${url}  (API description: ${url}/docs)`);
  switch (outcome.kind) {
    case 'created':
      if (outcome.chosen) console.log('The admin key is the value of RUNLAKE_BOOTSTRAP_API_KEY.');
      else {
        console.log(`Admin key, shown this once: ${outcome.key}`);
        console.log('To trace a program that uses the langsmith SDK, start it with these:');
        console.log(`  LANGSMITH_TRACING=true LANGSMITH_ENDPOINT=${url} LANGSMITH_API_KEY=${outcome.key}`);
      }
      break;
    case 'key-added':
      console.log('RUNLAKE_BOOTSTRAP_API_KEY was added as an admin key.');
      break;
    case 'key-revoked':
      console.log('RUNLAKE_BOOTSTRAP_API_KEY is a revoked key and stays revoked.');
      break;
    case 'present':
      break;
    default:
      outcome satisfies never;
  }
}
