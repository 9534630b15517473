/**
 * The S3 client warns on standard error, in several lines, that releases of its own to come need a newer Node. It is pinned, so
 * that says nothing to an operator; and a log is one line of JSON an event.
 */
export function quietStorageClient(environment: NodeJS.ProcessEnv = process.env): void {
  environment.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED = 'true';
}
