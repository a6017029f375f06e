/* SPDX-License-Identifier: MIT */
/* An flock(2) of the folder itself: no file is left behind, and the kernel gives it back. See folder_lock.h. */
#include "common/session/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/error.h"
#include "common/core/text.h"

static const char results[] = "results/";

/* Opens the folder of the file, made if it is not there; -1 when that fails: opening the file will say why. */
static int open_folder(const char *path, char **folder)
{
    *folder = xstrdup(path);
    for (char *slash = strchr(*folder, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(*folder, 0777);
        *slash = '/';
    }
    *strrchr(*folder, '/') = '\0';
    return open(*folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int folder_lock(const char *csv_path)
{
    if (!text_starts(csv_path, results))
        return -1;
    char *folder;
    const int fd = open_folder(csv_path, &folder);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        die(EXIT_CODE_FAILURE,
            "another run is writing %s; wait for it to end, or choose another place with --machine "
            "or --csv",
            folder);
    free(folder);
    return fd;
}

void folder_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}
