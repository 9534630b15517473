import { caller, terminal, transient } from './entry.ts';

/**
 * Errors of deployments. Those of builds and starts also become the reason of a failed revision, which its owner reads, so
 * they contain no secret and no path of the machine.
 */
export const deploymentErrors = {
  DEPLOYMENT_INVALID: caller(400, '{field}: {reason}.', 'Correct the field and send the request again.'),
  UPLOAD_LINK_INVALID: caller(
    403,
    'The upload link is not valid, was used, or has expired.',
    'Request another link with POST /v2/deployments/{deployment_id}/upload-url.',
  ),
  UPLOADS_LIMITED: caller(
    422,
    'The deployment has {limit} upload links or sources that no revision uses.',
    'Use one of them, or try again later: they are deleted after a day.',
  ),
  SOURCE_TOO_LARGE: caller(
    413,
    'The source is larger than {limitBytes} bytes (RUNLAKE_DEPLOYMENTS_MAX_SOURCE_BYTES).',
    'Leave out files that the build does not need, such as node_modules.',
  ),
  SOURCE_NOT_STORED: transient(
    503,
    'The source cannot be stored: {reason}.',
    'Upload the same file to the same link again. If that fails too, the operator frees space in the temporary folder of the process (TMPDIR) and in the data folder, or checks RUNLAKE_DEPLOYMENTS_SOURCE_STORE.',
  ),
  BUILD_FAILED: caller(400, '{reason}.', 'Read the logs of the revision, correct the source, and deploy it again.'),
  DEPLOYMENT_START_FAILED: caller(
    400,
    '{reason}.',
    'Read the logs of the revision, correct the source or the secrets, and deploy it again.',
  ),
  REVISION_TAKEN_OVER: transient(
    500,
    'A newer revision has ended this one, or another host has taken it over.',
    'No action is needed.',
  ),
  DEPLOYMENT_NOT_SERVING: transient(
    503,
    'Deployment {deployment} has no replica that answers.',
    'Read the status of its latest revision; retry if that is still being deployed.',
  ),
  ISOLATED_FILES_UNUSABLE: terminal(
    500,
    'Files of a process with its own user id cannot be {action}.',
    'Read the cause in the log of Runlake, and make sure that rm, chown, find and du are installed.',
  ),
  DEPLOYMENT_PORTS_USED: terminal(
    500,
    'All ports of {ports} are in use.',
    'Set RUNLAKE_DEPLOYMENTS_PORT_RANGE to a larger range.',
  ),
} as const;
