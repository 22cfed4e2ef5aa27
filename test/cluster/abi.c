/* SPDX-License-Identifier: BSD-3-Clause */
/* abi.c - what src/services declares of libpmix, libcurl and libjansson, beside their headers; test/cluster/run compiles it. */
#include <curl/curl.h>
#include <jansson.h>
#include <pmix.h>
#include <stddef.h>

#include "../../src/services/group_pmix_abi.h"

#define SAME(a, b) _Static_assert((a) == (b), #a " is not " #b)

SAME(sizeof(struct svc_pmix_proc), sizeof(pmix_proc_t));
SAME(offsetof(struct svc_pmix_proc, rank), offsetof(pmix_proc_t, rank));
SAME(sizeof(struct svc_pmix_value), sizeof(pmix_value_t));
SAME(offsetof(struct svc_pmix_value, data), offsetof(pmix_value_t, data));
SAME(offsetof(struct svc_pmix_value, data.block.size), offsetof(pmix_value_t, data.bo.size));
SAME(sizeof(struct svc_pmix_info), sizeof(pmix_info_t));
SAME(offsetof(struct svc_pmix_info, value), offsetof(pmix_info_t, value));
SAME((int)SVC_PMIX_OK, PMIX_SUCCESS);
SAME((int)SVC_PMIX_BOOL, PMIX_BOOL);
SAME((int)SVC_PMIX_UINT32, PMIX_UINT32);
SAME((int)SVC_PMIX_BYTES, PMIX_BYTE_OBJECT);
SAME((int)SVC_PMIX_GLOBAL, PMIX_GLOBAL);
SAME(SVC_PMIX_ANY_RANK, PMIX_RANK_WILDCARD);
SAME(sizeof(SVC_PMIX_JOB_SIZE), sizeof(PMIX_JOB_SIZE));
SAME(sizeof(SVC_PMIX_COLLECT), sizeof(PMIX_COLLECT_DATA));

/* A call through a pointer of ours: the compiler compares the arguments. */
#define TAKES(type, function) _Static_assert(_Generic(&(function), type : 1, default : 0), #function " is not " #type)
TAKES(pmix_status_t (*)(pmix_proc_t *, pmix_info_t *, size_t), PMIx_Init);
TAKES(pmix_status_t (*)(const pmix_info_t *, size_t), PMIx_Finalize);
TAKES(pmix_status_t (*)(pmix_scope_t, const char *, pmix_value_t *), PMIx_Put);
TAKES(pmix_status_t (*)(void), PMIx_Commit);
TAKES(pmix_status_t (*)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t, pmix_op_cbfunc_t, void *),
      PMIx_Fence_nb);
TAKES(pmix_status_t (*)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t, pmix_value_cbfunc_t, void *),
      PMIx_Get_nb);
TAKES(const char *(*)(pmix_status_t), PMIx_Error_string);
SAME(sizeof(pmix_status_t), sizeof(int));
SAME(sizeof(pmix_scope_t), sizeof(uint8_t));

TAKES(json_t *(*)(const char *, size_t, size_t, json_error_t *), json_loadb);
TAKES(void (*)(json_t *), json_delete);
TAKES(json_t *(*)(const json_t *, const char *), json_object_get);
TAKES(size_t (*)(const json_t *), json_array_size);
TAKES(json_t *(*)(const json_t *, size_t), json_array_get);
TAKES(const char *(*)(const json_t *), json_string_value);
TAKES(json_int_t (*)(const json_t *), json_integer_value);
SAME(sizeof(json_int_t), sizeof(long long));

SAME(CURLOPT_WRITEDATA, 10001);
SAME(CURLOPT_URL, 10002);
SAME(CURLOPT_PROXY, 10004);
SAME(CURLOPT_ERRORBUFFER, 10010);
SAME(CURLOPT_POSTFIELDS, 10015);
SAME(CURLOPT_HTTPHEADER, 10023);
SAME(CURLOPT_SSLCERT, 10025);
SAME(CURLOPT_CAINFO, 10065);
SAME(CURLOPT_SSLKEY, 10087);
SAME(CURLOPT_CAPATH, 10097);
SAME(CURLOPT_SSL_VERIFYPEER, 64);
SAME(CURLOPT_SSL_VERIFYHOST, 81);
SAME(CURLOPT_QUICK_EXIT, 322);
SAME(CURLOPT_NOSIGNAL, 99);
SAME(CURLOPT_TIMEOUT_MS, 155);
SAME(CURLOPT_CONNECTTIMEOUT_MS, 156);
SAME(CURLOPT_WRITEFUNCTION, 20011);
SAME(CURLOPT_OPENSOCKETFUNCTION, 20163);
SAME(CURLINFO_RESPONSE_CODE, 0x200002);
SAME(CURLE_NOT_BUILT_IN, 4);
SAME(CURLE_WRITE_ERROR, 23);
SAME(CURLE_OUT_OF_MEMORY, 27);
SAME(CURLE_SSL_CONNECT_ERROR, 35);
SAME(CURLE_RECV_ERROR, 56);
SAME(CURLE_SSL_CERTPROBLEM, 58);
SAME(CURLE_PEER_FAILED_VERIFICATION, 60);
SAME(CURLE_SSL_CACERT_BADFILE, 77);
SAME(CURL_GLOBAL_ALL, 3);
SAME(CURL_ERROR_SIZE, 256);
SAME(CURL_WRITEFUNC_PAUSE, 0x10000001);
SAME(CURLPAUSE_CONT, 0);
SAME((int)CURLMSG_DONE, 1);
SAME(offsetof(CURLMsg, easy_handle), sizeof(void *));
SAME(offsetof(CURLMsg, data), 2 * sizeof(void *));
TAKES(CURLcode (*)(CURL *, int), curl_easy_pause);
TAKES(CURLM *(*)(void), curl_multi_init);
TAKES(CURLMcode (*)(CURLM *, CURL *), curl_multi_add_handle);
TAKES(CURLMcode (*)(CURLM *, CURL *), curl_multi_remove_handle);
TAKES(CURLMcode (*)(CURLM *, int *), curl_multi_perform);
TAKES(CURLMsg *(*)(CURLM *, int *), curl_multi_info_read);
TAKES(CURLMcode (*)(CURLM *), curl_multi_cleanup);
SAME(offsetof(struct curl_sockaddr, addr), 16);
